// Products of few rows, few columns and a great depth, as gradients of parameters are: C = A B over ranges of depth
// of their own, which are added in order, so that the sums do not depend on the number of threads.
#include "gemm.h"

// C, or C^T, whose columns are as many as the longer side of C.
template <class T> struct vg_tall {
  int64_t m, n, k;
  const T *a, *b, *bias;
  int64_t a_row, a_depth, b_depth, b_column;
  T* c;
  int64_t c_row, c_column;
  bool is_turned;  // whether it is C^T that is made, so that the bias belongs to rows
  int64_t depth;  // of a range
  T* room;        // for the sum of each range
  int64_t failed;  // whether some thread found no memory: see threads.h
  int64_t ranges() const { return (k + depth - 1) / depth; }
};

template <class T> static void vg_tall_ranges(int64_t begin, int64_t end, void* context) {
  vg_tall<T>& t = *(vg_tall<T>*)context;
  T* packed = (T*)malloc(vg_packed_size<T>(VG_DEPTH, t.n) * sizeof(T));
  if (packed == nullptr) return vg_fail(&t.failed);
  for (int64_t i = begin; i < end; ++i) {
    T* sum = t.room + i * t.m * t.n;
    const int64_t start = i * t.depth, stop = start + t.depth < t.k ? start + t.depth : t.k;
    for (int64_t p = start; p < stop; p += VG_DEPTH) {
      const int64_t depth = stop - p < VG_DEPTH ? stop - p : VG_DEPTH;
      vg_pack_block(depth, t.n, t.b + p * t.b_depth, t.b_depth, t.b_column, packed);
      const vg_gemm_call<T> g = {t.n, depth, t.a + p * t.a_depth, nullptr, nullptr, sum, t.a_row, t.a_depth, t.n, p > start};
      vg_gemm_rows<T>(0, t.m, g, 0, depth, packed);
    }
  }
  free(packed);
}

// Rows of C: what the ranges came to.
template <class T> static void vg_tall_sums(int64_t begin, int64_t end, void* context) {
  const vg_tall<T>& t = *(const vg_tall<T>*)context;
  for (int64_t r = begin; r < end; ++r) {
    T* sum = t.room + r * t.n;
    for (int64_t i = 1; i < t.ranges(); ++i) {
      const T* more = sum + i * t.m * t.n;
      for (int64_t j = 0; j < t.n; ++j) sum[j] += more[j];
    }
    for (int64_t j = 0; j < t.n; ++j) {
      T* to = t.c + r * t.c_row + j * t.c_column;
      *to = t.bias == nullptr ? sum[j] : sum[j] + t.bias[t.is_turned ? r : j];
    }
  }
}

constexpr int64_t vg_most_ranges = 64;

template <class T> static int64_t vg_tall_product_of(int64_t* a) {
  vg_tall<T> t = {a[0], a[1], a[2], (const T*)a[3], (const T*)a[6], (const T*)a[12], a[4], a[5], a[7], a[8], (T*)a[10], a[11], 1, false};
  if (t.n < t.m) {
    t = {a[1], a[0], a[2], (const T*)a[6], (const T*)a[3], (const T*)a[12], a[8], a[7], a[5], a[4], (T*)a[10], 1, a[11], true};
  }
  const int64_t least = 8 * VG_DEPTH, even = (t.k + vg_most_ranges - 1) / vg_most_ranges;
  t.depth = even < least ? least : (even + VG_DEPTH - 1) / VG_DEPTH * VG_DEPTH;
  t.room = (T*)a[9];
  if (t.room == nullptr) {
    a[9] = t.ranges() * t.m * t.n * (int64_t)sizeof(T);
  } else if (a[13] == 0) {
    vg_tall_ranges<T>(0, t.ranges(), &t);
    if (!t.failed) vg_tall_sums<T>(0, t.m, &t);
  } else {
    ((vg_parallel_for)a[13])(0, t.ranges(), 1, vg_tall_ranges<T>, &t);
    if (!t.failed) ((vg_parallel_for)a[13])(0, t.m, 16, vg_tall_sums<T>, &t);
  }
  return t.failed;
}

// a: as vg_product's; where no room is given (a[9]) the bytes that are needed are put there instead.
// Gives whether there was no memory.
extern "C" int64_t vg_tall_product(int64_t* a) { return a[14] == 4 ? vg_tall_product_of<float>(a) : vg_tall_product_of<double>(a); }
