// Loops over frontiers: copies of rows within a frontier, products with matrices that lie in a block's own memory,
// and where blocks wait for one another. What a launch writes and reads again must not be told __restrict__.
#ifdef __CUDACC__
extern __shared__ __align__(16) char vg_room[];  // as much as the launch asks for
#endif

// All blocks of the grid, which are resident together (a cooperative launch); ``arrived`` counts on from zero.
VG_FN void vg_meet(uint32_t* arrived) {
  __syncthreads();
  if (gridDim.x > 1) {
    if (threadIdx.x == 0) {
      __threadfence();
      const uint32_t wanted = (atomicAdd(arrived, 1u) / gridDim.x + 1) * gridDim.x;
      while (*(volatile uint32_t*)arrived < wanted) __nanosleep(20);
      __threadfence();
    }
    __syncthreads();
  }
}
// Whether a row is left to those that share out its edges: it has more than ``most`` (0: none is).
VG_FN bool vg_is_hub(const int64_t* in_ptr, const int64_t* out_ptr, int64_t v, int64_t most) {
  if (!most) return false;
  return in_ptr[v + 1] - in_ptr[v] > most || (out_ptr && out_ptr[v + 1] - out_ptr[v] > most);
}
// One row, by the T lanes of a team.
template <int T, class E> VG_FN void vg_copy_row(E* to, const E* from, int count, int lane) {
  for (int i = lane; i < count; i += T) to[i] = from[i];
}
template <int T, class E> VG_FN void vg_clear_row(E* to, int count, int lane) {
  for (int i = lane; i < count; i += T) to[i] = E();
}
// Columns [first, first + n) of a matrix of K rows, to ``room`` row by row.
template <class E> VG_FN void vg_fetch(E* room, const E* w, int64_t down, int64_t across, int K, int first, int n) {
  for (int u = threadIdx.x; u < K * n; u += blockDim.x) room[u] = w[u / n * down + (int64_t)(first + u % n) * across];
}
// out[r][first + c] = bias[first + c] + sum over k of left[r][k] * w[k][c], for rows [r0, r1) and c < n: a thread has
// one column of R rows, and adds in the order of k, whoever shares the work. Numbers of 16 bits are added in 32.
template <int R, int W, int K, class E>
VG_FN void vg_rows_times(
    E* out, int64_t step, const E* left, int64_t left_step, const E* w, const E* bias, int first, int n, int64_t r0,
    int64_t r1) {
  typedef decltype(vg_load<1>(left)) S;
  const int64_t tiles = (r1 - r0 + R - 1) / R;
  for (int64_t u = threadIdx.x; u < tiles * n; u += blockDim.x) {
    const int column = (int)(u % n);
    const int64_t row = r0 + u / n * R;
    const E* from[R];
    S sum[R];
    VG_UNROLL for (int i = 0; i < R; ++i) {
      from[i] = left + (row + i < r1 ? row + i : r1 - 1) * left_step;
      sum[i] = bias ? vg_load<1>(bias + first + column) : S(0);
    }
    for (int k = 0; k < K; k += W) {
      vg_t<S, W> x[R];
      VG_UNROLL for (int i = 0; i < R; ++i) x[i] = vg_load<W>(from[i] + k);
      VG_UNROLL for (int j = 0; j < W; ++j) {
        const S y = vg_load<1>(w + (k + j) * n + column);
        VG_UNROLL for (int i = 0; i < R; ++i) sum[i] = vg_fma(vg_at(x[i], j), y, sum[i]);
      }
    }
    VG_UNROLL for (int i = 0; i < R; ++i)
      if (row + i < r1) vg_store<1>(out + (row + i) * step + first + column, sum[i]);
  }
}
