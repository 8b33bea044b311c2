// Prelude of every generated kernel for a GPU: numbers and short vectors of them, teams of lanes.
// The names are those of prelude.h, so that one printer of expressions serves both. It includes nothing that
// NVRTC lacks, and is plain C++ beside the intrinsics of CUDA, so that a CPU can run it for tests.
#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#define vg_inf __longlong_as_double(0x7ff0000000000000ll)
#define vg_nan __longlong_as_double(0x7ff8000000000000ll)
#else
#define vg_inf __builtin_huge_val()
#define vg_nan __builtin_nan("")
#endif
#define VG_FN static __device__ __forceinline__
#define VG_UNROLL _Pragma("unroll")

// ---------------------------------------------------------------- vectors of W numbers; one number is a scalar
struct vg_bf16 { uint16_t bits; };
struct vg_half { uint16_t bits; };

template <class T, int W> struct vg_vec { T n[W]; };
template <class T, int W> struct vg_pick { typedef vg_vec<T, W> type; };
template <class T> struct vg_pick<T, 1> { typedef T type; };
template <class T, int W> using vg_t = typename vg_pick<T, W>::type;
template <class V> struct vg_traits { typedef V elem; static constexpr int lanes = 1; };
template <class T, int W> struct vg_traits<vg_vec<T, W>> { typedef T elem; static constexpr int lanes = W; };
template <class V> using vg_elem = typename vg_traits<V>::elem;

template <class A> VG_FN A vg_at(A a, int) { return a; }
template <class T, int W> VG_FN T vg_at(vg_vec<T, W> a, int i) { return a.n[i]; }
template <class T> VG_FN void vg_put(T& v, int, T x) { v = x; }
template <class T, int W> VG_FN void vg_put(vg_vec<T, W>& v, int i, T x) { v.n[i] = x; }

#define VG_OPERATOR(sign, E)                                                                      \
  template <class T, int W> VG_FN auto operator sign(vg_vec<T, W> a, vg_vec<T, W> b) {            \
    vg_vec<E, W> y;                                                                               \
    VG_UNROLL for (int i = 0; i < W; ++i) y.n[i] = a.n[i] sign b.n[i];                            \
    return y;                                                                                     \
  }                                                                                               \
  template <class T, int W, class S> VG_FN auto operator sign(vg_vec<T, W> a, S b) {              \
    vg_vec<E, W> y;                                                                               \
    VG_UNROLL for (int i = 0; i < W; ++i) y.n[i] = a.n[i] sign (T)b;                              \
    return y;                                                                                     \
  }                                                                                               \
  template <class T, int W, class S> VG_FN auto operator sign(S a, vg_vec<T, W> b) {              \
    vg_vec<E, W> y;                                                                               \
    VG_UNROLL for (int i = 0; i < W; ++i) y.n[i] = (T)a sign b.n[i];                              \
    return y;                                                                                     \
  }
VG_OPERATOR(+, T)
VG_OPERATOR(-, T)
VG_OPERATOR(*, T)
VG_OPERATOR(/, T)
VG_OPERATOR(==, bool)
VG_OPERATOR(!=, bool)
VG_OPERATOR(<, bool)
VG_OPERATOR(<=, bool)
VG_OPERATOR(>, bool)
VG_OPERATOR(>=, bool)
template <class T, int W> VG_FN vg_vec<T, W> operator-(vg_vec<T, W> a) {
  VG_UNROLL for (int i = 0; i < W; ++i) a.n[i] = -a.n[i];
  return a;
}
template <class V, class A> VG_FN V vg_set(A a) {  // a number in every lane
  V v;
  VG_UNROLL for (int i = 0; i < vg_traits<V>::lanes; ++i) vg_put(v, i, (vg_elem<V>)vg_at(a, i));
  return v;
}
template <class E, class V> VG_FN vg_t<E, vg_traits<V>::lanes> vg_cast(V x) {
  return vg_set<vg_t<E, vg_traits<V>::lanes>>(x);
}
template <class V, class M, class A, class B> VG_FN V vg_select(M mask, A a, B b) {
  V v;
  VG_UNROLL for (int i = 0; i < vg_traits<V>::lanes; ++i)
    vg_put(v, i, vg_at(mask, i) ? (vg_elem<V>)vg_at(a, i) : (vg_elem<V>)vg_at(b, i));
  return v;
}
VG_FN constexpr int vg_wider(int a, int b) { return a > b ? a : b; }
#define VG_TRUTH(name, text)                                                                      \
  template <class M, class N> VG_FN auto name(M m, N n) {                                         \
    vg_t<bool, vg_wider(vg_traits<M>::lanes, vg_traits<N>::lanes)> y;                             \
    VG_UNROLL for (int i = 0; i < vg_wider(vg_traits<M>::lanes, vg_traits<N>::lanes); ++i) {      \
      const bool a = vg_at(m, i), b = vg_at(n, i);                                                \
      vg_put(y, i, (bool)(text));                                                                 \
    }                                                                                             \
    return y;                                                                                     \
  }
VG_TRUTH(vg_and, a && b)
VG_TRUTH(vg_or, a || b)
template <class M> VG_FN M vg_not(M m) { return vg_select<M>(m, false, true); }

// ---------------------------------------------------------------- memory: at most 16 bytes an access, aligned
template <class T, int W> struct alignas(sizeof(T) * W < 16 ? sizeof(T) * W : 16) vg_packed { T n[W]; };
template <int W, class T> VG_FN vg_t<T, W> vg_raw(const T* p) {
  vg_t<T, W> v;
  const vg_packed<T, W> x = *(const vg_packed<T, W>*)p;
  VG_UNROLL for (int i = 0; i < W; ++i) vg_put(v, i, x.n[i]);
  return v;
}
template <int W, class T> VG_FN auto vg_load(const T* p) { return vg_raw<W>(p); }
VG_FN float vg_from(vg_bf16 x) {
  const uint32_t bits = (uint32_t)x.bits << 16;
  float y;
  memcpy(&y, &bits, 4);
  return y;
}
VG_FN vg_bf16 vg_to_bf16(float x) {  // to nearest, ties to even
  uint32_t bits;
  memcpy(&bits, &x, 4);
  bits = x != x ? 0x7fc00000u : bits + 0x7fffu + ((bits >> 16) & 1u);
  return vg_bf16{(uint16_t)(bits >> 16)};
}
#ifdef __CUDACC__
VG_FN float vg_from(vg_half x) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits)); return y; }
VG_FN vg_half vg_to_half(float x) { vg_half y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); return y; }
#else
VG_FN float vg_from(vg_half x) { return vg_float_of_half(x.bits); }  // where a CPU stands in for the GPU
VG_FN vg_half vg_to_half(float x) { return vg_half{vg_half_of_float(x)}; }
#endif
template <int W, class T> VG_FN vg_t<float, W> vg_load_short(const T* p) {
  vg_t<float, W> v;
  const vg_packed<T, W> x = *(const vg_packed<T, W>*)p;
  VG_UNROLL for (int i = 0; i < W; ++i) vg_put(v, i, vg_from(x.n[i]));
  return v;
}
template <int W> VG_FN auto vg_load(const vg_bf16* p) { return vg_load_short<W>(p); }
template <int W> VG_FN auto vg_load(const vg_half* p) { return vg_load_short<W>(p); }
template <int W, class T, class A> VG_FN void vg_store(T* p, A a) {
  vg_packed<T, W> x;
  VG_UNROLL for (int i = 0; i < W; ++i) x.n[i] = (T)vg_at(a, i);
  *(vg_packed<T, W>*)p = x;
}
template <int W, class A> VG_FN void vg_store(vg_bf16* p, A a) {
  vg_packed<vg_bf16, W> x;
  VG_UNROLL for (int i = 0; i < W; ++i) x.n[i] = vg_to_bf16((float)vg_at(a, i));
  *(vg_packed<vg_bf16, W>*)p = x;
}
template <int W, class A> VG_FN void vg_store(vg_half* p, A a) {
  vg_packed<vg_half, W> x;
  VG_UNROLL for (int i = 0; i < W; ++i) x.n[i] = vg_to_half((float)vg_at(a, i));
  *(vg_packed<vg_half, W>*)p = x;
}
VG_FN float vg_kept(float x, vg_bf16) { return vg_from(vg_to_bf16(x)); }
VG_FN float vg_kept(float x, vg_half) { return vg_from(vg_to_half(x)); }
template <class S, class V> VG_FN V vg_rounded(V x) {  // as it lies in memory
  VG_UNROLL for (int i = 0; i < vg_traits<V>::lanes; ++i) vg_put(x, i, vg_kept(vg_at(x, i), S()));
  return x;
}

// ---------------------------------------------------------------- functions of one number
#define VG_BY_LANE(name, single, wide)                                                            \
  VG_FN float name(float x) { return single; }                                                    \
  VG_FN double name(double x) { return wide; }                                                    \
  template <class T, int W> VG_FN vg_vec<T, W> name(vg_vec<T, W> v) {                             \
    VG_UNROLL for (int i = 0; i < W; ++i) v.n[i] = name(v.n[i]);                                  \
    return v;                                                                                     \
  }
VG_BY_LANE(vg_sqrt, sqrtf(x), sqrt(x))
VG_BY_LANE(vg_erf, erff(x), erf(x))
VG_BY_LANE(vg_sin, sinf(x), sin(x))
VG_BY_LANE(vg_cos, cosf(x), cos(x))
VG_BY_LANE(vg_log1p, log1pf(x), log1p(x))
VG_BY_LANE(vg_expm1, expm1f(x), expm1(x))
VG_BY_LANE(vg_floor, floorf(x), floor(x))
VG_BY_LANE(vg_exp, expf(x), exp(x))
VG_BY_LANE(vg_log, logf(x), log(x))
VG_BY_LANE(vg_tanh, tanhf(x), tanh(x))
VG_BY_LANE(vg_softplus, log1pf(expf(x)), log1p(exp(x)))
VG_BY_LANE(vg_abs, fabsf(x), fabs(x))
VG_BY_LANE(vg_relu, x < 0.0f ? 0.0f : x, x < 0.0 ? 0.0 : x)
VG_BY_LANE(vg_sigmoid, 1.0f / (1.0f + expf(-x)), 1.0 / (1.0 + exp(-x)))
VG_BY_LANE(vg_logistic, (x < 0.0f ? expf(x) : 1.0f) / (1.0f + expf(-fabsf(x))),
           (x < 0.0 ? exp(x) : 1.0) / (1.0 + exp(-fabs(x))))
VG_BY_LANE(vg_sign, x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : 0.0f, x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : 0.0)
VG_FN float vg_fma(float a, float b, float c) { return fmaf(a, b, c); }
VG_FN double vg_fma(double a, double b, double c) { return fma(a, b, c); }
template <class T, int W> VG_FN vg_vec<T, W> vg_fma(T a, vg_vec<T, W> b, vg_vec<T, W> c) {
  VG_UNROLL for (int i = 0; i < W; ++i) c.n[i] = vg_fma(a, b.n[i], c.n[i]);
  return c;
}
template <class V> VG_FN vg_elem<V> vg_lane_sum(V x) {
  vg_elem<V> total = vg_at(x, 0);
  VG_UNROLL for (int i = 1; i < vg_traits<V>::lanes; ++i) total = total + vg_at(x, i);
  return total;
}

// ---------------------------------------------------------------- random numbers by (seed, number, row, column)
VG_FN uint64_t vg_mix(uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * (uint64_t)0xbf58476d1ce4e5b9u;
  bits = (bits ^ (bits >> 27)) * (uint64_t)0x94d049bb133111ebu;
  return bits ^ (bits >> 31);
}
template <int W> VG_FN vg_t<int64_t, W> vg_random(int64_t seed, int64_t number, int64_t row, int64_t column) {
  const uint64_t key = vg_mix((uint64_t)seed + vg_mix((uint64_t)number + 1)), mine = vg_mix((uint64_t)row + key);
  vg_t<int64_t, W> v;
  VG_UNROLL for (int i = 0; i < W; ++i)
    vg_put(v, i, (int64_t)(vg_mix(vg_mix((uint64_t)(column + 1 + i)) ^ mine) >> 11));
  return v;
}
template <int W> VG_FN vg_t<double, W> vg_uniform64(vg_t<int64_t, W> bits) {
  vg_t<double, W> v;
  VG_UNROLL for (int i = 0; i < W; ++i) vg_put(v, i, (double)vg_at(bits, i) * 0x1p-53);
  return v;
}
template <int W> VG_FN vg_t<float, W> vg_uniform32(vg_t<int64_t, W> bits) {
  vg_t<float, W> v;
  VG_UNROLL for (int i = 0; i < W; ++i) vg_put(v, i, (float)(vg_at(bits, i) >> 29) * 0x1p-24f);
  return v;
}
template <int W> VG_FN vg_t<int32_t, W> vg_is_below(vg_t<int64_t, W> bits, int64_t limit) {  // 1 where bits < limit
  return vg_set<vg_t<int32_t, W>>(bits < limit);
}

#include "teams.cuh"
#include "walk.cuh"
