// Matrix products for the loops over frontiers: C = [bias or C +] op(A) op(B), row major, in float or double.
// B is packed once into panels of columns (a loop packs its parameters before it begins), so that a product of
// few rows costs little more than its arithmetic. No header of the C++ library, as in prelude.h.
#pragma GCC optimize("fp-contract=fast")  // a product and a sum are one instruction here
#include "prelude.h"

#if defined(__AVX512F__)
#define VG_BYTES 64
#define VG_ROWS 8     // of C in registers, times VG_VECTORS vectors: two thirds of the loads are of B, all of them hidden
#define VG_VECTORS 3
#elif defined(__AVX__)
#define VG_BYTES 32
#define VG_ROWS 6
#define VG_VECTORS 2
#else
#define VG_BYTES 16
#define VG_ROWS 6
#define VG_VECTORS 2
#endif
#define VG_DEPTH 256  // of a block of B: so much of VG_ROWS rows of A stays in the first cache
#define VG_AHEAD 64   // numbers from a row that is being packed to those fetched meanwhile
#define VG_BLOCK 128  // rows of C that stay in the second cache from block to block

template <class T> struct vg_vector;
template <> struct vg_vector<float> { typedef float type __attribute__((vector_size(VG_BYTES), aligned(4), may_alias)); };
template <> struct vg_vector<double> { typedef double type __attribute__((vector_size(VG_BYTES), aligned(8), may_alias)); };

template <int BYTES> struct vg_index;  // as many whole numbers as a vector has
template <> struct vg_index<4> { typedef int32_t type __attribute__((vector_size(VG_BYTES))); };
template <> struct vg_index<8> { typedef int64_t type __attribute__((vector_size(VG_BYTES))); };

// B lies in panels of ``width`` columns, depth by depth; the last one has as many vectors as it needs.
template <class T> struct vg_panel { static const int64_t lanes = VG_BYTES / sizeof(T), width = VG_VECTORS * lanes; };

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

template <class T> struct vg_gemm_call {
  int64_t n, k;
  const T *a, *b, *bias;
  T* c;
  int64_t row, column, step_c;
  bool adds;
};

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
template <class T> static void vg_gemm_rows(int64_t begin, int64_t end, const vg_gemm_call<T>& g, int64_t first, int64_t depth,
                                            const T* block) {
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

// Elements of the packed form of a k x n matrix.
template <class T> static inline int64_t vg_packed_size(int64_t k, int64_t n) {
  const int64_t L = vg_panel<T>::lanes;
  return k * ((n + L - 1) / L * L);
}

#if !defined(__clang__)  // which shuffles by numbers that it knows alone
// L rows of L numbers across: numbers whose places differ in one bit change places, bit by bit.
template <class T> static inline void vg_across(const T* from, int64_t column, T* to, int64_t step) {
  typedef typename vg_vector<T>::type V;
  typedef typename vg_index<sizeof(T)>::type I;
  const int L = vg_panel<T>::lanes;
  V rows[L];
#pragma GCC unroll 16
  for (int i = 0; i < L; ++i) {
    rows[i] = *(const V*)(from + i * column);
    __builtin_prefetch(from + i * column + VG_AHEAD);
  }
#pragma GCC unroll 4
  for (int bit = 1; bit < L; bit *= 2) {
    I low, high;  // of two rows: where a place has the bit, the other one's number at the place without it
    for (int i = 0; i < L; ++i) low[i] = i & bit ? L + (i ^ bit) : i, high[i] = i & bit ? L + i : i ^ bit;
#pragma GCC unroll 16
    for (int i = 0; i < L; ++i) {
      if (i & bit) continue;
      const V one = rows[i], two = rows[i | bit];
      rows[i] = __builtin_shuffle(one, two, low), rows[i | bit] = __builtin_shuffle(one, two, high);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < L; ++i) *(V*)(to + i * step) = rows[i];
}
#endif

// One panel of a block; ``ids``: of its rows, if they are not one after the other.
template <class T> static void vg_pack_panel(
    int64_t depth, int64_t width, const T* b, int64_t row, int64_t column, const int32_t* ids, T* to) {
  const int64_t L = vg_panel<T>::lanes, W = (width + L - 1) / L * L;
  if (column == 1) {
    for (int64_t p = 0; p < depth; ++p) {
      const T* from = b + (ids == nullptr ? p : ids[p]) * row;
      for (int64_t i = 0; i < width; ++i) to[p * W + i] = from[i];
      for (int64_t i = width; i < W; ++i) to[p * W + i] = T(0);
    }
    return;
  }
  int64_t whole = 0;  // rows of B^T, a square at a time
#if !defined(__clang__)
  if (row == 1) whole = depth / L * L;
  for (int64_t i = 0; i + L <= width; i += L)
    for (int64_t p = 0; p < whole; p += L) vg_across<T>(b + p + i * column, column, to + p * W + i, W);
#endif
  for (int64_t i = 0; i < W; ++i) {
    const bool is_done = i < width / L * L;
    for (int64_t p = is_done ? whole : 0; p < depth; ++p) to[p * W + i] = i < width ? b[p * row + i * column] : T(0);
  }
}

template <class T> static void vg_pack_block(int64_t depth, int64_t n, const T* b, int64_t row, int64_t column, T* to) {
  const int64_t most = vg_panel<T>::width;
  for (int64_t j = 0; j < n; j += most)
    vg_pack_panel<T>(depth, n - j < most ? n - j : most, b + j * column, row, column, nullptr, to + depth * j);
}

// A k x n matrix to be packed: panel by panel of each block of depth, by any number of threads.
template <class T> struct vg_packing {
  int64_t k, n;
  const T* b;
  int64_t row, column;
  T* to;
  const int32_t* ids;  // of rows of B, or none; then a row has no gaps
  int64_t panels() const { return (n + vg_panel<T>::width - 1) / vg_panel<T>::width; }
  int64_t pieces() const { return (k + VG_DEPTH - 1) / VG_DEPTH * panels(); }
};

template <class T> static void vg_pack_pieces(int64_t begin, int64_t end, void* context) {
  const vg_packing<T>& m = *(const vg_packing<T>*)context;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t p = i / m.panels() * VG_DEPTH, j = i % m.panels() * vg_panel<T>::width;
    const int64_t depth = m.k - p < VG_DEPTH ? m.k - p : VG_DEPTH;
    const int64_t width = m.n - j < vg_panel<T>::width ? m.n - j : vg_panel<T>::width;
    const T* from = m.b + (m.ids == nullptr ? p * m.row : 0) + j * m.column;
    T* to = m.to + vg_packed_size<T>(p, m.n) + depth * j;
    vg_pack_panel<T>(depth, width, from, m.row, m.column, m.ids == nullptr ? nullptr : m.ids + p, to);
  }
}

// Rows [begin, end) of C with B packed whole.
template <class T> static void vg_gemm_packed(int64_t begin, int64_t end, void* context) {
  const vg_gemm_call<T>& g = *(const vg_gemm_call<T>*)context;
  if (g.k == 0) {
    for (int64_t i = begin; i < end && !g.adds; ++i)
      for (int64_t j = 0; j < g.n; ++j) g.c[i * g.step_c + j] = g.bias == nullptr ? T(0) : g.bias[j];
    return;
  }
  for (int64_t i = begin; i < end; i += VG_BLOCK) {
    const int64_t stop = end - i < VG_BLOCK ? end : i + VG_BLOCK;
    const T* block = g.b;
    for (int64_t p = 0; p < g.k; p += VG_DEPTH) {
      const int64_t depth = g.k - p < VG_DEPTH ? g.k - p : VG_DEPTH;
      vg_gemm_rows(i, stop, g, p, depth, block);
      block += vg_packed_size<T>(depth, g.n);
    }
  }
}
