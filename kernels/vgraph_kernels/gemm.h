// Matrix products for the loops over frontiers: C = [bias or C +] op(A) op(B), row major, in float or double.
// B is packed once into panels of columns (a loop packs its parameters before it begins), so that a product of
// few rows costs little more than its arithmetic. No header of the C++ library, as in prelude.h.
#pragma once
#include "panels.h"

static int64_t (*vg_tiles_apart[2])(const int64_t*);  // of floats and of doubles: vg_multiply_block of tiles.h

// a: those two addresses; before anything is multiplied
extern "C" void vg_use_tiles(const int64_t* a) {
  for (int i = 0; i < 2; ++i) vg_tiles_apart[i] = (int64_t (*)(const int64_t*))a[i];
}

// Rows [begin, end) of C times one block of depth.
template <class T> static inline void vg_gemm_rows(
    int64_t begin, int64_t end, const vg_gemm_call<T>& g, int64_t first, int64_t depth, const T* block) {
  const int64_t a[] = {begin, end, (int64_t)&g, first, depth, (int64_t)block};
  vg_tiles_apart[sizeof(T) == 8](a);
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
