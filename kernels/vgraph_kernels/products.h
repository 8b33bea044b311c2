// Products of rows of numbers and small matrices that stay in the nearest cache.
// Part of prelude.h, whose vectors it is written in.
// a * b + c, rounded once where the machine can; GCC has no name for it that fits every vector.
template <class V> static inline V vg_fma(V a, V b, V c) {
#if defined(__clang__)
  if constexpr (vg_traits<V>::lanes > 1) return __builtin_elementwise_fma(a, b, c);
#elif defined(__FMA__)
#if defined(__AVX512F__)
  if constexpr (sizeof(V) == 64 && sizeof(vg_elem<V>) == 4) return (V)__builtin_ia32_vfmaddps512_mask(a, b, c, -1, 4);
  else if constexpr (sizeof(V) == 64) return (V)__builtin_ia32_vfmaddpd512_mask(a, b, c, -1, 4);
  else
#endif
  if constexpr (sizeof(V) == 32 && sizeof(vg_elem<V>) == 4) return (V)__builtin_ia32_vfmaddps256(a, b, c);
  else if constexpr (sizeof(V) == 32) return (V)__builtin_ia32_vfmaddpd256(a, b, c);
  else if constexpr (sizeof(V) > 32) {
    typedef vg_t<vg_elem<V>, vg_traits<V>::lanes / 2> H;
    struct both { H low, high; } x = vg_as<both>(a), y = vg_as<both>(b), z = vg_as<both>(c);
    return vg_as<V>(both{vg_fma(x.low, y.low, z.low), vg_fma(x.high, y.high, z.high)});
  }
#endif
  return a * b + c;
}
#if defined(__AVX512F__)
constexpr int vg_sums_at_once = 24;  // vectors: some registers are left for what is multiplied
#else
constexpr int vg_sums_at_once = 8;
#endif
// A vector that is read several times stays in a register: GCC reads it from memory for every use, at one read a product.
template <class V> static inline V vg_held(V x) {
#if defined(__AVX512F__) && defined(__GNUC__)
  if constexpr (sizeof(V) == 64) __asm__("" : "+v"(x));
#endif
  return x;
}
// How many chains of additions a row of so many vectors has, and how many vectors of it are made at a time.
constexpr int vg_row_chains(int tiles) { return tiles >= 8 ? 1 : tiles >= 4 ? 2 : 4; }
constexpr int vg_row_tiles(int tiles) { return tiles < 8 ? tiles : 8; }
constexpr int vg_rows_at_once(int tiles) {  // of which products are made at once
  const int rows = vg_sums_at_once / (vg_row_chains(tiles) * vg_row_tiles(tiles));
  return rows < 1 ? 1 : rows < 4 ? rows : 4;
}
// out[r][f] = bias[f] + sum over k of x[r][k * step] * w[k][f] for R rows, several chains of additions at a time.
template <int W, int K, int F, int R, class T, class X, class M, class B>
static inline void vg_multiply_part(T* __restrict out, const X* const* x, int64_t step, const M* w, const B* bias) {
  typedef vg_t<T, W> V;
  constexpr int tiles = (F + W - 1) / W, most = vg_row_tiles(tiles), chains = vg_row_chains(tiles);
  const X* from[R];
  VG_UNROLL for (int r = 0; r < R; ++r) from[r] = x[r];
  for (int first = 0; first < tiles; first += most) {
    V c[R][chains][most];
    int at[most];
    VG_UNROLL for (int q = 0; q < most; ++q) {
      at[q] = (first + q) * W < F - W ? (first + q) * W : F - W;
      VG_UNROLL for (int r = 0; r < R; ++r) {
        VG_UNROLL for (int s = 0; s < chains; ++s) c[r][s][q] = V{};
        if (bias) c[r][0][q] = vg_set<V>(vg_load<W>(bias + at[q]));
      }
    }
    int k = 0;
    for (; k + chains <= K; k += chains) {
      VG_UNROLL for (int s = 0; s < chains; ++s) {
        V row[most];
        VG_UNROLL for (int q = 0; q < most; ++q) {
          row[q] = vg_set<V>(vg_load<W>(w + (k + s) * F + at[q]));
          if constexpr (R > 1) row[q] = vg_held(row[q]);
        }
        VG_UNROLL for (int r = 0; r < R; ++r) {
          V number = vg_set<V>((T)vg_load<1>(from[r] + (k + s) * step));
          VG_UNROLL for (int q = 0; q < most; ++q) c[r][s][q] = vg_fma(number, row[q], c[r][s][q]);
        }
      }
    }
    for (; k < K; ++k) {
      VG_UNROLL for (int r = 0; r < R; ++r) {
        V number = vg_set<V>((T)vg_load<1>(from[r] + k * step));
        VG_UNROLL for (int q = 0; q < most; ++q) c[r][0][q] = vg_fma(number, vg_set<V>(vg_load<W>(w + k * F + at[q])), c[r][0][q]);
      }
    }
    VG_UNROLL for (int r = 0; r < R; ++r) VG_UNROLL for (int q = 0; q < most; ++q) {
      V total = c[r][0][q];
      VG_UNROLL for (int s = 1; s < chains; ++s) total = total + c[r][s][q];
      vg_store<W>(out + r * F + at[q], total);
    }
  }
}
// The product of one row.
template <int W, int K, int F, class T, class X, class M, class B>
static inline void vg_multiply(T* __restrict out, const X* x, int64_t step, const M* w, const B* bias) {
  vg_multiply_part<W, K, F, 1>(out, &x, step, w, bias);
}
// Those of ``num`` rows, which lie where x says: the same numbers as one by one, while each vector of the matrix is read for
// several of them. A function of its own, so that a kernel of many products is compiled in the time of a few.
template <int W, int K, int F, class T, class X, class M, class B>
static __attribute__((noinline)) void vg_multiply_rows(T* __restrict out, const X* const* x, int64_t step, const M* w, const B* bias, int num) {
  constexpr int R = vg_rows_at_once((F + W - 1) / W);
  int n = 0;
  for (; n + R <= num; n += R) vg_multiply_part<W, K, F, R>(out + n * F, x + n, step, w, bias);
  if constexpr (R > 1) for (; n < num; ++n) vg_multiply_part<W, K, F, 1>(out + n * F, x + n, step, w, bias);
}
constexpr int vg_block = 32;  // rows whose outer products are summed at once
#if defined(__AVX512F__)
constexpr int vg_outer_vectors = 4;  // along a row of the sum: with four rows half of the registers
#else
constexpr int vg_outer_vectors = 1;
#endif
// R rows of vg_outer's sum from row k on, Q vectors of each from column q on.
template <int W, int R, int Q, int K, int F, class T>
static inline void vg_outer_part(T* __restrict sum, const T* __restrict left, const T* __restrict right, int rows, int q, int k) {
  typedef vg_t<T, W> V;
  const int f = q < F - Q * W ? q : F - Q * W;
  V c[R][Q];
  VG_UNROLL for (int r = 0; r < R; ++r) VG_UNROLL for (int p = 0; p < Q; ++p) c[r][p] = V{};
  for (int n = 0; n < rows; ++n) {
    V x[Q];
    VG_UNROLL for (int p = 0; p < Q; ++p) x[p] = vg_held((V)vg_load<W>(right + n * F + f + p * W));
    VG_UNROLL for (int r = 0; r < R; ++r) {
      const V number = vg_set<V>(left[n * K + k + r]);
      VG_UNROLL for (int p = 0; p < Q; ++p) c[r][p] = vg_fma(number, x[p], c[r][p]);
    }
  }
  VG_UNROLL for (int r = 0; r < R; ++r) VG_UNROLL for (int p = 0; p < Q; ++p) {
    T* at = sum + (int64_t)(k + r) * F + f + p * W;
    if (q == f) { vg_store<W>(at, (V)(vg_load<W>(at) + c[r][p])); continue; }
    for (int i = q - f; i < W; ++i) at[i] += ((const T*)&c[r][p])[i];  // the overlap was added before
  }
}
// sum[k][f] += left[n][k] * right[n][f] over n < rows, some columns and four rows of the sum at a time; eight where a row
// has one vector, as units for products wait for one another's sums else.
template <int W, int K, int F, class T>
static __attribute__((noinline)) void vg_outer(T* __restrict sum, const T* __restrict left, const T* __restrict right, int rows) {
  constexpr int Q = F >= vg_outer_vectors * W ? vg_outer_vectors : 1;
  constexpr int R = Q == 1 && K % 8 == 0 ? 8 : K % 4 == 0 ? 4 : 1;
  int q = 0;
  for (; q + Q * W <= F; q += Q * W) {
    for (int k = 0; k < K; k += R) vg_outer_part<W, R, Q, K, F>(sum, left, right, rows, q, k);
  }
  for (; q < F; q += W) {
    for (int k = 0; k < K; k += R) vg_outer_part<W, R, 1, K, F>(sum, left, right, rows, q, k);
  }
}
