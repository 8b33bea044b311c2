// Multi-mode reduction on a GPU: any subset of a tensor's modes in one launch, by virtual coordinates.
// A generated body gives the numbers (``at``), the combination, and how a block divides its work. Elements of a
// slice and slices themselves are counted; a count becomes a place by division through the sizes of modes.
// Everything is combined in an order that depends on the layout alone. Included after prelude.cuh.
//
// a: out, partial, slices, elements a slice, chunks, operands, then a row for each kept mode (size, factor, shift,
// out stride, byte strides) and for each reduced one (size, factor, shift, byte strides); outermost first.
constexpr int vg_reduce_threads = 256;

// The quotient of a count below 2^31 and a mode's size, by multiplication.
VG_FN uint32_t vg_quotient(uint32_t n, const int64_t* mode) {
  return (uint32_t)((((uint64_t)n * (uint64_t)mode[1] >> 32) + n) >> mode[2]);
}
template <int N, int K, int X> VG_FN void vg_seek(int64_t* at, int64_t* out, const int64_t* modes, uint32_t count) {
  VG_UNROLL for (int m = N - 1; m >= 0; --m) {
    const int64_t* mode = modes + m * (X + K);
    const uint32_t left = m ? vg_quotient(count, mode) : 0;
    const int64_t index = count - left * (uint32_t)mode[0];
    if (X == 4) *out += index * mode[3];
    VG_UNROLL for (int k = 0; k < K; ++k) at[k] += index * mode[X + k];
    count = left;
  }
}
template <class B> struct vg_task {
  static constexpr int K = B::operands, V = B::lanes;
  typedef typename B::A A;
  typedef vg_t<A, V> N;
  const int64_t* a;
  int64_t from[K], out = 0;
  __device__ __forceinline__ vg_task(const int64_t* words, uint32_t slice) : a(words) {
    VG_UNROLL for (int k = 0; k < K; ++k) from[k] = a[5 + k];
    vg_seek<B::kept, K, 4>(from, &out, a + 5 + K, slice);
  }
  __device__ __forceinline__ N load(uint32_t element) const {
    int64_t at[K], none = 0;
    VG_UNROLL for (int k = 0; k < K; ++k) at[k] = from[k];
    vg_seek<B::reduced, K, 3>(at, &none, a + 5 + K + B::kept * (4 + K), element);
    return B::template at<V>(at);
  }
  // Elements begin, begin + step ... before end, of which there is at least one.
  __device__ __forceinline__ N sum(uint32_t begin, uint32_t end, uint32_t step) const {
    N total = load(begin);
    uint32_t i = begin + step;
    for (; i + 3 * step < end; i += 4 * step) {
      const N x0 = load(i), x1 = load(i + step), x2 = load(i + 2 * step), x3 = load(i + 3 * step);
      total = B::template combine<V>(total, B::template combine<V>(B::template combine<V>(x0, x1), B::template combine<V>(x2, x3)));
    }
    for (; i < end; i += step) total = B::template combine<V>(total, load(i));
    return total;
  }
  __device__ __forceinline__ void write(int64_t slice, int lane, A x) const {
    if (a[4] > 1) ((A*)a[1])[(int64_t)blockIdx.y * a[2] + slice] = x;
    else vg_store<1>((typename B::Out*)a[0] + out + lane * (V > 1 ? a[5 + K + (B::kept - 1) * (4 + K) + 3] : 0), B::template after<1>(x));
  }
};
VG_FN uint32_t vg_part(uint32_t all, uint32_t part, uint32_t parts) { return (uint32_t)((uint64_t)all * part / parts); }

template <class B, class N> VG_FN typename B::A vg_fold_lanes(N x) {
  typename B::A total = vg_at(x, 0);
  VG_UNROLL for (int i = 1; i < vg_traits<N>::lanes; ++i) total = B::template combine<1>(total, vg_at(x, i));
  return total;
}
// The first ``valid`` lanes of a team as one number, in order; the first lane has it.
template <class B, int T> VG_FN typename B::A vg_fold_team(typename B::A x, int lane, int valid) {
  VG_UNROLL for (int across = 1; across < T; across *= 2) {
    const typename B::A other = vg_swap(vg_mask<T>(), x, across);
    if (!(lane & across) && lane + across < valid) x = B::template combine<1>(x, other);
  }
  return x;
}

// ---------------------------------------------------------------- the innermost mode is reduced: a team a slice
template <class B> VG_FN void vg_reduce_rows(const int64_t* a) {
  constexpr int T = B::team, V = B::lanes, W = T < 32 ? T : 32;
  typedef typename B::A A;
  const int lane = threadIdx.x % T;
  const uint32_t mine = blockIdx.x * (vg_reduce_threads / T) + threadIdx.x / T;
  const bool is_there = mine < a[2];
  const uint32_t slice = is_there ? mine : 0, units = (uint32_t)(a[3] / V);
  const uint32_t begin = vg_part(units, blockIdx.y, a[4]), end = vg_part(units, blockIdx.y + 1, a[4]);
  const vg_task<B> task(a, slice);
  A total;
  if constexpr (B::ordered) {  // T neighbours after T neighbours
    for (uint32_t tile = begin; tile < end; tile += T) {
      const int valid = end - tile < T ? end - tile : T;
      A x = vg_fold_lanes<B>(task.load((tile + (lane < valid ? lane : 0)) * V));
      x = vg_fold_team<B, W>(x, lane, valid);
      total = tile == begin ? x : B::template combine<1>(total, x);
    }
  } else {
    const int valid = end - begin < T ? end - begin : T;
    total = vg_fold_lanes<B>(task.sum((begin + (lane < valid ? lane : 0)) * V, end * V, T * V));
    total = vg_fold_team<B, W>(total, lane % W, valid - lane / W * W);
    if constexpr (T > 32) {
      __shared__ A sums[vg_reduce_threads / 32];
      if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = total;
      __syncthreads();
      if (threadIdx.x == 0) for (int w = 1; w * 32 < valid; ++w) total = B::template combine<1>(total, sums[w]);
    }
  }
  if (is_there && lane == 0) task.write(slice, 0, total);
}

// ---------------------------------------------------------------- the innermost mode is kept: lanes along it
template <class B> VG_FN void vg_reduce_columns(const int64_t* a) {
  constexpr int X = B::team, V = B::lanes, Y = vg_reduce_threads / X;
  typedef vg_t<typename B::A, V> N;
  __shared__ N sums[vg_reduce_threads];
  const int column = threadIdx.x % X, part = threadIdx.x / X;
  const uint32_t mine = blockIdx.x * X + column;
  const bool is_there = (int64_t)mine * V < a[2];
  const uint32_t slice = (is_there ? mine : 0) * V, all = (uint32_t)a[3], parts = (uint32_t)a[4] * Y;
  const uint32_t first = vg_part(all, blockIdx.y * Y, parts), last = vg_part(all, (blockIdx.y + 1) * Y, parts);
  const int valid = last - first < Y ? last - first : Y;  // parts of this block that have elements
  const vg_task<B> task(a, slice);
  N total;
  if (part < valid) {
    total = task.sum(first + vg_part(last - first, part, valid), first + vg_part(last - first, part + 1, valid), 1);
    sums[threadIdx.x] = total;
  }
  for (int across = 1; across < Y; across *= 2) {
    __syncthreads();
    if (part % (2 * across) == 0 && part + across < valid) {
      total = B::template combine<V>(total, sums[threadIdx.x + across * X]);
      sums[threadIdx.x] = total;
    }
  }
  if (part == 0 && is_there) VG_UNROLL for (int i = 0; i < V; ++i) task.write(slice + i, i, vg_at(total, i));
}

// ---------------------------------------------------------------- what chunks left, in order
template <class B> VG_FN void vg_reduce_chunks(const int64_t* a) {
  const uint32_t slice = blockIdx.x * vg_reduce_threads + threadIdx.x;
  if (slice >= a[2]) return;
  const typename B::A* sums = (const typename B::A*)a[1] + slice;
  typename B::A total = sums[0];
  for (int64_t c = 1; c < a[4]; ++c) total = B::template combine<1>(total, sums[c * a[2]]);
  const vg_task<B> task(a, slice);
  vg_store<1>((typename B::Out*)a[0] + task.out, B::template after<1>(total));
}
