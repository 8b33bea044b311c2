// Matrix products for the loops over frontiers: C = [bias or C +] op(A) op(B), row major, in float or double.
// B is packed once into panels of columns (a loop packs its parameters before it begins), so that a product of
// few rows costs little more than its arithmetic. No header of the C++ library, as in prelude.h.
#pragma GCC optimize("fp-contract=fast")  // a product and a sum are one instruction here
#include "prelude.h"

#if defined(__AVX512F__)
#define VG_BYTES 64
#define VG_ROWS 14
#elif defined(__AVX__)
#define VG_BYTES 32
#define VG_ROWS 6
#else
#define VG_BYTES 16
#define VG_ROWS 6
#endif
#define VG_DEPTH 384  // of a block of B: a panel of it and as many rows of A lie in the first cache

template <class T> struct vg_vector;
template <> struct vg_vector<float> { typedef float type __attribute__((vector_size(VG_BYTES), aligned(4), may_alias)); };
template <> struct vg_vector<double> { typedef double type __attribute__((vector_size(VG_BYTES), aligned(8), may_alias)); };

template <class T> struct vg_panel { static const int64_t lanes = VG_BYTES / sizeof(T), width = 2 * lanes; };

// R rows of C times P panels (each of two vectors), over one block of depth k.
template <class T, int R, int P>
static inline __attribute__((always_inline)) void vg_tile(
    int64_t k, const T* a, int64_t row, int64_t column, const T* b, int64_t panel, T* c, int64_t step_c,
    const T* start, int64_t step_start, int64_t width) {
  typedef typename vg_vector<T>::type V;
  const int64_t L = vg_panel<T>::lanes;
  V sums[R][2 * P];
  const bool is_full = width >= 2 * P * L;
  T edge[R * 2 * P * VG_BYTES / sizeof(T)];
  if (start == nullptr) {
    for (int r = 0; r < R; ++r) for (int j = 0; j < 2 * P; ++j) sums[r][j] = V{};
  } else if (is_full) {
    for (int r = 0; r < R; ++r)
      for (int j = 0; j < 2 * P; ++j) sums[r][j] = *(const V*)(start + r * step_start + j * L);
  } else {
    for (int r = 0; r < R; ++r)
      for (int64_t j = 0; j < 2 * P * L; ++j) edge[r * 2 * P * L + j] = j < width ? start[r * step_start + j] : T(0);
    for (int r = 0; r < R; ++r)
      for (int j = 0; j < 2 * P; ++j) sums[r][j] = *(const V*)(edge + (r * 2 * P + j) * L);
  }
  for (int64_t p = 0; p < k; ++p) {
    V right[2 * P];
#pragma GCC unroll 8
    for (int j = 0; j < 2 * P; ++j) right[j] = *(const V*)(b + (j / 2) * panel + p * 2 * L + (j % 2) * L);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const T left = a[r * row + p * column];
#pragma GCC unroll 8
      for (int j = 0; j < 2 * P; ++j) sums[r][j] += left * right[j];
    }
  }
  if (is_full) {
    for (int r = 0; r < R; ++r)
      for (int j = 0; j < 2 * P; ++j) *(V*)(c + r * step_c + j * L) = sums[r][j];
  } else {
    for (int r = 0; r < R; ++r)
      for (int j = 0; j < 2 * P; ++j) *(V*)(edge + (r * 2 * P + j) * L) = sums[r][j];
    for (int r = 0; r < R; ++r)
      for (int64_t j = 0; j < width; ++j) c[r * step_c + j] = edge[r * 2 * P * L + j];
  }
}

// Few rows take several panels at once: enough sums in flight to hide the latency of an addition.
template <class T, int R> static void vg_rows(
    int64_t k, const T* a, int64_t row, int64_t column, const T* b, int64_t panel, T* c, int64_t step_c,
    const T* start, int64_t step_start, int64_t n) {
  const int64_t W = vg_panel<T>::width;
  const int P = VG_BYTES < 64 ? 1 : R <= 3 ? 4 : R <= 6 ? 2 : 1;
  int64_t j = 0;
  for (; P > 1 && j + P * W <= n; j += P * W) {
    const T* from = start == nullptr ? nullptr : start + j;
    vg_tile<T, R, P>(k, a, row, column, b + j / W * panel, panel, c + j, step_c, from, step_start, P * W);
  }
  for (; j < n; j += W) {
    const T* from = start == nullptr ? nullptr : start + j;
    vg_tile<T, R, 1>(k, a, row, column, b + j / W * panel, panel, c + j, step_c, from, step_start, n - j);
  }
}

#if VG_ROWS == 14
#define VG_FOR_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
#else
#define VG_FOR_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6)
#endif

template <class T> struct vg_gemm_call {
  int64_t n, k;
  const T *a, *b, *bias;
  T* c;
  int64_t row, column, step_c;
  bool adds;
};

// Rows [begin, end) of C with B packed whole: blocks of depth one after the other, each panel by panel.
template <class T> static void vg_gemm_rows(int64_t begin, int64_t end, const vg_gemm_call<T>& g, int64_t first, int64_t depth,
                                            const T* block) {
  const T* a = g.a + first * g.column;
  const T* start = first > 0 || g.adds ? g.c : g.bias;
  const int64_t step_start = start == g.bias ? 0 : g.step_c;
  int64_t blocks = (end - begin + VG_ROWS - 1) / VG_ROWS;
  for (int64_t i = begin; i < end; --blocks) {
    const int64_t rows = (end - i + blocks - 1) / blocks;
    const T* from = start == nullptr ? nullptr : start + i * step_start;
#define X(R) case R: vg_rows<T, R>(depth, a + i * g.row, g.row, g.column, block, depth * vg_panel<T>::width, \
    g.c + i * g.step_c, g.step_c, from, step_start, g.n); break;
    switch (rows) { VG_FOR_ROWS(X) }
#undef X
    i += rows;
  }
}

template <class T> static inline int64_t vg_panels(int64_t n) { return (n + vg_panel<T>::width - 1) / vg_panel<T>::width; }

// Elements of the packed form of a k x n matrix.
template <class T> static inline int64_t vg_packed_size(int64_t k, int64_t n) { return k * vg_panels<T>(n) * vg_panel<T>::width; }

template <class T> static void vg_pack_block(int64_t depth, int64_t n, const T* b, int64_t row, int64_t column, T* to) {
  const int64_t W = vg_panel<T>::width;
  for (int64_t j = 0; j < n; j += W) {
    const int64_t width = n - j < W ? n - j : W;
    const T* from = b + j * column;
    if (column == 1) {
      for (int64_t p = 0; p < depth; ++p) {
        for (int64_t i = 0; i < width; ++i) to[p * W + i] = from[p * row + i];
        for (int64_t i = width; i < W; ++i) to[p * W + i] = T(0);
      }
    } else {
      for (int64_t p = 0; p < depth; p += 16) {  // sixteen numbers of a line are used while it is near
        const int64_t stop = depth - p < 16 ? depth : p + 16;
        for (int64_t i = 0; i < W; ++i)
          for (int64_t q = p; q < stop; ++q) to[q * W + i] = i < width ? from[q * row + i * column] : T(0);
      }
    }
    to += depth * W;
  }
}

// The whole of a k x n matrix, block of depth by block of depth.
template <class T> static void vg_pack(int64_t k, int64_t n, const T* b, int64_t row, int64_t column, T* to) {
  for (int64_t p = 0; p < k; p += VG_DEPTH) {
    const int64_t depth = k - p < VG_DEPTH ? k - p : VG_DEPTH;
    vg_pack_block(depth, n, b + p * row, row, column, to);
    to += vg_packed_size<T>(depth, n);
  }
}

template <class T> static void vg_gemm_packed(int64_t begin, int64_t end, void* context) {
  const vg_gemm_call<T>& g = *(const vg_gemm_call<T>*)context;
  if (g.k == 0) {
    for (int64_t i = begin; i < end && !g.adds; ++i)
      for (int64_t j = 0; j < g.n; ++j) g.c[i * g.step_c + j] = g.bias == nullptr ? T(0) : g.bias[j];
    return;
  }
  const int64_t most = 28 * VG_ROWS;  // rows of A that stay in the second cache
  for (int64_t i = begin; i < end; i += most) {
    const int64_t stop = end - i < most ? end : i + most;
    const T* block = g.b;
    for (int64_t p = 0; p < g.k; p += VG_DEPTH) {
      const int64_t depth = g.k - p < VG_DEPTH ? g.k - p : VG_DEPTH;
      vg_gemm_rows(i, stop, g, p, depth, block);
      block += vg_packed_size<T>(depth, g.n);
    }
  }
}
