// What those that pack matrices and those that multiply packed ones have in common: how wide panels are, and one product.
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

template <class T> struct vg_gemm_call {
  int64_t n, k;
  const T *a, *b, *bias;
  T* c;
  int64_t row, column, step_c;
  bool adds;
};
