// Tiles of a product in registers, in float or in double: most of what compilers have to do for products. So each is
// compiled by itself, beside all else, which calls it by its address (gemm.h).
#include "panels.h"

// R rows of C times Q panels of N vectors, over one block of depth k. A: rows ``row`` apart, or, packed, R
// numbers for each step of depth.
template <class T, int R, int N, int Q, bool IS_PACKED>
static __attribute__((noinline)) void vg_tile(
    int64_t k, const T* a, int64_t row, const T* b, T* c, int64_t step_c, const T* start, int64_t step_start) {
  typedef typename vg_vector<T>::type V;
  const int64_t L = vg_panel<T>::lanes, panel = k * N * L;
  const int M = N * Q;
  V sums[R][M];
  for (int r = 0; r < R; ++r)
    for (int j = 0; j < M; ++j) sums[r][j] = start == nullptr ? V{} : *(const V*)(start + r * step_start + j * L);
  for (int64_t p = 0; p < k; ++p) {
    V right[M];
#pragma GCC unroll 8
    for (int j = 0; j < M; ++j) right[j] = *(const V*)(b + (j / N) * panel + (p * N + j % N) * L);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const T left = IS_PACKED ? a[p * R + r] : a[r * row + p];
#pragma GCC unroll 8
      for (int j = 0; j < M; ++j) sums[r][j] += left * right[j];
    }
  }
  for (int r = 0; r < R; ++r) for (int j = 0; j < M; ++j) *(V*)(c + r * step_c + j * L) = sums[r][j];
}

template <class T> static void vg_copy_part(
    int64_t rows, int64_t width, const T* from, int64_t step_from, T* to, int64_t step_to) {
  for (int64_t r = 0; r < rows; ++r) __builtin_memcpy(to + r * step_to, from + r * step_from, width * sizeof(T));
}

// The last panel of R rows where C has no room for whole vectors.
template <class T, int R, int N, bool IS_PACKED> static void vg_edge(
    int64_t k, const T* a, int64_t row, const T* b, T* c, int64_t step_c, const T* start, int64_t step_start, int64_t width) {
  const int64_t W = N * vg_panel<T>::lanes;
  if (width >= W) return vg_tile<T, R, N, 1, IS_PACKED>(k, a, row, b, c, step_c, start, step_start);
  T room[R * N * VG_BYTES / sizeof(T)];
  if (start != nullptr) {
    for (int64_t i = 0; i < R * W; ++i) room[i] = T(0);
    vg_copy_part(R, width, start, step_start, room, W);
  }
  vg_tile<T, R, N, 1, IS_PACKED>(k, a, row, b, room, W, start == nullptr ? nullptr : room, W);
  vg_copy_part(R, width, room, W, c, step_c);
}

// Few rows take two panels at once: enough sums in flight to hide the latency of an addition.
template <class T, int R, bool IS_PACKED> static void vg_rows(
    int64_t k, const T* a, int64_t row, const T* b, T* c, int64_t step_c, const T* start, int64_t step_start, int64_t n) {
  const int64_t L = vg_panel<T>::lanes, W = vg_panel<T>::width;
  const int Q = R <= 2 ? 2 : 1;
  const T* from = start;
  int64_t j = 0;
  for (; j + Q * W <= n; j += Q * W) {
    vg_tile<T, R, VG_VECTORS, Q, IS_PACKED>(k, a, row, b + j * k, c + j, step_c, from, step_start);
    from = start == nullptr ? nullptr : from + Q * W;
  }
  while (j < n) {
    const int64_t vectors = (n - j + L - 1) / L;
    if (vectors >= VG_VECTORS) vg_edge<T, R, VG_VECTORS, IS_PACKED>(k, a, row, b + j * k, c + j, step_c, from, step_start, n - j);
#if VG_VECTORS == 3
    else if (vectors == 2) vg_edge<T, R, 2, IS_PACKED>(k, a, row, b + j * k, c + j, step_c, from, step_start, n - j);
#endif
    else vg_edge<T, R, 1, IS_PACKED>(k, a, row, b + j * k, c + j, step_c, from, step_start, n - j);
    from = start == nullptr ? nullptr : from + W;
    j += W;
  }
}

#if VG_ROWS == 8
#define VG_FOR_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)
#else
#define VG_FOR_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6)
#endif

// Only floats in rows have a tile for every number of rows: what is compiled once a machine should not take long.
static constexpr bool vg_is_cheap(int64_t rows) { return rows == VG_ROWS || (rows & (rows - 1)) == 0; }

template <class T, int R, bool IS_PACKED> static inline void vg_few(
    int64_t k, const T* a, int64_t row, const T* b, T* c, int64_t step_c, const T* start, int64_t step_start, int64_t n) {
  if constexpr (vg_is_cheap(R) || (sizeof(T) == 4 && !IS_PACKED))
    vg_rows<T, R, IS_PACKED>(k, a, row, b, c, step_c, start, step_start, n);
}

// R rows of A, number by number of a block of depth.
template <class T, int R> static void vg_pack_rows(const T* a, int64_t row, int64_t column, int64_t depth, T* to) {
  if (row == 1) {  // rows of A^T, a vector at a time
    for (int64_t p = 0; p < depth; ++p) __builtin_memcpy(to + p * R, a + p * column, R * sizeof(T));
    return;
  }
  for (int64_t p = 0; p < depth; ++p)
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) to[p * R + r] = a[r * row + p * column];
}

// Rows [begin, end) of C times one block of depth: a few rows at a time, panel by panel.
template <class T> static void vg_multiply_rows(int64_t begin, int64_t end, const vg_gemm_call<T>& g, int64_t first,
                                                int64_t depth, const T* block) {
  const T* a = g.a + first * g.column;
  const T* start = first > 0 || g.adds ? g.c : g.bias;
  const int64_t step_start = start == g.bias ? 0 : g.step_c;
  T packed[VG_ROWS * VG_DEPTH];
  int64_t blocks = (end - begin + VG_ROWS - 1) / VG_ROWS;
  for (int64_t i = begin; i < end; --blocks) {
    const bool is_plain = sizeof(T) == 4 && g.column == 1;
    int64_t rows = VG_ROWS;
    if (is_plain) rows = (end - i + blocks - 1) / blocks;  // of others there are more than ``blocks``
    else while (rows > end - i || !vg_is_cheap(rows)) --rows;
    const T *from = start == nullptr ? nullptr : start + i * step_start, *left = a + i * g.row;
    T* to = g.c + i * g.step_c;
#define X(R) case R: \
    if (g.column == 1) { vg_few<T, R, false>(depth, left, g.row, block, to, g.step_c, from, step_start, g.n); break; } \
    vg_pack_rows<T, R>(left, g.row, g.column, depth, packed); \
    vg_few<T, R, true>(depth, packed, 0, block, to, g.step_c, from, step_start, g.n); break;
    switch (rows) { VG_FOR_ROWS(X) }
#undef X
    i += rows;
  }
}

// As vg_gemm_rows of gemm.h gives them.
template <class T> static int64_t vg_multiply_block(const int64_t* a) {
  vg_multiply_rows<T>(a[0], a[1], *(const vg_gemm_call<T>*)a[2], a[3], a[4], (const T*)a[5]);
  return 0;
}
