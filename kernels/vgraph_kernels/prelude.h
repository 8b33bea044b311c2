// Prelude of every generated kernel for the CPU: numbers and short vectors of them, functions without
// branches or calls, and the way into torch's own thread pool.
// It includes no header of the C++ library, whose parsing would take longer than the kernel.
#pragma once
#include <stdint.h>

#define vg_inf __builtin_inf()
#define vg_nan __builtin_nan("")
constexpr int64_t vg_chain = 512;  // edges whose rows are added one after the other; then sums are added
constexpr int64_t vg_turn = 128;  // edges that are taken twice while their rows lie in cache
#ifndef __has_builtin  // GCC before 10
#define __has_builtin(name) 0
#endif
#if defined(__clang__)
#define VG_UNROLL _Pragma("unroll")
#else
#define VG_UNROLL _Pragma("GCC unroll 64")
#endif

// Asks for a cache line that is read much later: into the second cache, to which more lines can be on their way at a
// time than to the first (on a Zen 4 processor a loop that gathers rows of 64 numbers takes two thirds of the time).
static inline void vg_read_ahead(const void* p) { __builtin_prefetch(p, 0, 2); }

// ---------------------------------------------------------------- vectors of W numbers; one number is a scalar
struct vg_bf16 { uint16_t bits; };
struct vg_half { uint16_t bits; };  // in software: older compilers have no such type in C++

template <class T, int W> struct vg_vec { typedef T type __attribute__((vector_size(sizeof(T) * W))); };
template <class T> struct vg_vec<T, 1> { typedef T type; };
template <class T, int W> using vg_t = typename vg_vec<T, W>::type;

template <class A> struct vg_strip { typedef A type; };
template <class A> struct vg_strip<A&> { typedef A type; };
template <class V> struct vg_traits {
  typedef typename vg_strip<decltype(((V*)nullptr)[0][0])>::type elem;
  static constexpr int lanes = sizeof(V) / sizeof(elem);
};
template <class T> struct vg_scalar { typedef T elem; static constexpr int lanes = 1; };
template <> struct vg_traits<float> : vg_scalar<float> {};
template <> struct vg_traits<double> : vg_scalar<double> {};
template <> struct vg_traits<bool> : vg_scalar<bool> {};
template <> struct vg_traits<int8_t> : vg_scalar<int8_t> {};
template <> struct vg_traits<int32_t> : vg_scalar<int32_t> {};
template <> struct vg_traits<uint32_t> : vg_scalar<uint32_t> {};
template <> struct vg_traits<int64_t> : vg_scalar<int64_t> {};
template <> struct vg_traits<uint64_t> : vg_scalar<uint64_t> {};
template <class V> using vg_elem = typename vg_traits<V>::elem;

template <int bytes> struct vg_int_of { typedef int64_t type; };
template <> struct vg_int_of<4> { typedef int32_t type; };
template <> struct vg_int_of<2> { typedef int16_t type; };
template <> struct vg_int_of<1> { typedef int8_t type; };
template <class V> using vg_bits = vg_t<typename vg_int_of<sizeof(vg_elem<V>)>::type, vg_traits<V>::lanes>;

template <class To, class From> static inline To vg_as(From from) {  // the same bits
  static_assert(sizeof(To) == sizeof(From), "bits are kept");
  To to;
  __builtin_memcpy(&to, &from, sizeof(To));
  return to;
}
template <class V, class A> static inline V vg_set(A a) {  // a number in every lane
  if constexpr (vg_traits<A>::lanes == vg_traits<V>::lanes) return (V)a;
  else return (vg_elem<V>)a - V{};  // compilers leave out to take zero away, but not to add it: -0.0 would become 0.0
}
template <class E, class V> static inline vg_t<E, vg_traits<V>::lanes> vg_cast(V x) {
  if constexpr (vg_traits<V>::lanes == 1) return (E)x;
  else return __builtin_convertvector(x, vg_t<E, vg_traits<V>::lanes>);
}
// A truth value is a bool, or a lane of ones of the width of what was compared.
template <class V, class M, class A, class B> static inline V vg_select(M mask, A a, B b) {
  if constexpr (vg_traits<V>::lanes == 1) return mask ? (V)a : (V)b;
  else if constexpr (vg_traits<M>::lanes == 1) return mask ? vg_set<V>(a) : vg_set<V>(b);
  else return vg_cast<vg_elem<vg_bits<V>>>(mask) ? vg_set<V>(a) : vg_set<V>(b);
}
template <class M> static inline auto vg_not(M m) { if constexpr (vg_traits<M>::lanes == 1) return !m; else return ~m; }
template <class M, class N> static inline auto vg_and(M m, N n) {
  if constexpr (vg_traits<M>::lanes == 1 && vg_traits<N>::lanes == 1) return m && n;
  else if constexpr (vg_traits<M>::lanes == 1) return m ? n : n ^ n;
  else if constexpr (vg_traits<N>::lanes == 1) return n ? m : m ^ m;
  else return m & vg_cast<vg_elem<M>>(n);
}
template <class M, class N> static inline auto vg_or(M m, N n) { return vg_not(vg_and(vg_not(m), vg_not(n))); }

// ---------------------------------------------------------------- memory
template <class V> static inline V vg_iota();
template <int W, class T> static inline auto vg_load(const T* p) {
  if constexpr (W == 1) return *p;
  else { vg_t<T, W> v; __builtin_memcpy(&v, p, sizeof(v)); return v; }
}
template <int W> static inline auto vg_load(const bool* p) {
  if constexpr (W == 1) return *p;
  else return vg_load<W>((const int8_t*)p) != 0;
}
template <int W, class T> static inline vg_t<int32_t, W> vg_load_short(const T* p) {
  if constexpr (W == 1) return p->bits;
  else return vg_cast<int32_t>(vg_load<W>((const uint16_t*)p));
}
template <int W, class T> static inline void vg_store_short(T* p, vg_t<int32_t, W> bits) {
  if constexpr (W == 1) p->bits = (uint16_t)bits;
  else { auto low = vg_cast<uint16_t>(bits); __builtin_memcpy(p, &low, sizeof(low)); }
}
// Below 2^-14 a half's last bit counts 2^-24: what a sum with a number whose last bit does is exact. No number on the
// way is subnormal, so that a processor may treat those as zero.
template <int W> static inline auto vg_load(const vg_half* p) {
  typedef vg_t<int32_t, W> V;
  typedef vg_t<float, W> F;
  V half = vg_load_short<W>(p), bits = (half & 0x7fff) << 13;
  V small = vg_as<V>((F)(vg_as<F>((V)(bits + (113 << 23))) - 0x1p-14f));
  V wide = bits + (112 << 23);
  wide = vg_select<V>(bits < (1 << 23), small, vg_select<V>(bits >= (31 << 23), wide + (112 << 23), wide));
  return vg_as<F>((V)(wide | (half & 0x8000) << 16));
}
template <int W> static inline auto vg_load(const vg_bf16* p) {
  return vg_as<vg_t<float, W>>(vg_load_short<W>(p) << 16);
}
// The lanes of a short vector again and again; numbers first, first + 1 ... of a row of C, each L times.
template <int... I> struct vg_list {};
template <int N, int... I> struct vg_count : vg_count<N - 1, N - 1, I...> {};
template <int... I> struct vg_count<0, I...> { typedef vg_list<I...> type; };
#if __has_builtin(__builtin_shufflevector)
template <class H, int... I> static inline auto vg_again(H h, vg_list<I...>) {
  return __builtin_shufflevector(h, h, (I % vg_traits<H>::lanes)...);
}
template <int W, class H> static inline auto vg_repeat(H h) {
  if constexpr (vg_traits<H>::lanes == W) return h;
  else return vg_again(h, typename vg_count<W>::type());
}
#else
template <int W, class H> static inline auto vg_repeat(H h) {
  vg_t<vg_elem<H>, W> v;
  VG_UNROLL for (int i = 0; i < W; ++i) v[i] = h[i % vg_traits<H>::lanes];
  return v;
}
#endif
template <int W, int L, int C, class T> static inline auto vg_spread(const T* p, int64_t first) {
#if !defined(__clang__)
  if constexpr ((C & (C - 1)) == 0 && C <= W) {
    auto row = vg_repeat<W>(vg_load<C>(p));
    typedef vg_bits<decltype(row)> I;
    return __builtin_shuffle(row, (I)(vg_iota<I>() / L + (vg_elem<I>)first));
  } else
#endif
  {
    vg_t<decltype(+vg_load<1>(p)), W> v;
    VG_UNROLL for (int i = 0; i < W; ++i) v[i] = vg_load<1>(p + first + i / L);
    return v;
  }
}
template <int W, class T, class A> static inline void vg_store(T* p, A a) {
  vg_t<T, W> v = vg_set<vg_t<T, W>>(a);
  __builtin_memcpy(p, &v, sizeof(v));
}
template <int W, class A> static inline void vg_store(bool* p, A a) {
  if constexpr (W == 1) *p = a;
  else vg_store<W>((int8_t*)p, vg_select<vg_t<int8_t, W>>(a, 1, 0));
}
template <int W, class A> static inline void vg_store(vg_half* p, A a) {  // to nearest, ties to even
  typedef vg_t<uint32_t, W> U;  // of what is not chosen, sums may leave the range of numbers with a sign
  typedef vg_t<float, W> F;
  U x = vg_as<U>(vg_set<F>(a)), size = x & 0x7fffffffu;
  U small = vg_as<U>((F)(vg_as<F>(size) + 0.5f)) - (126u << 23);
  U half = (size - (112u << 23) + 0xfffu + ((size >> 13) & 1u)) >> 13;
  half = vg_select<U>(size < (113u << 23), small, vg_select<U>(size >= (143u << 23), 0x7c00u, half));
  half = vg_select<U>(size > (255u << 23), 0x7e00u, half);
  vg_store_short<W>(p, vg_as<vg_t<int32_t, W>>((U)(half | (x >> 16 & 0x8000u))));
}
template <int W, class A> static inline void vg_store(vg_bf16* p, A a) {  // to nearest, ties to even
  typedef vg_t<float, W> F;
  typedef vg_t<uint32_t, W> U;
  F x = vg_set<F>(a);
  U bits = vg_as<U>(x);
  bits = vg_select<U>(x != x, 0x7fc00000u, bits + 0x7fffu + ((bits >> 16) & 1u));
  vg_store_short<W>(p, vg_as<vg_t<int32_t, W>>((U)(bits >> 16)));
}
template <class S, class V> static inline vg_t<float, vg_traits<V>::lanes> vg_rounded(V x) {  // as it lies in memory
  S room[vg_traits<V>::lanes];
  vg_store<vg_traits<V>::lanes>(room, x);
  return vg_load<vg_traits<V>::lanes>(room);
}

// ---------------------------------------------------------------- functions of one number
#define VG_BY_LANE(name, single, wide)                                       \
  template <class V> static inline V name(V x) {                             \
    typedef vg_elem<V> E;                                                    \
    if constexpr (vg_traits<V>::lanes == 1) {                                \
      if constexpr (sizeof(E) == 4) return single(x); else return wide(x);   \
    } else {                                                                 \
      V y;                                                                   \
      VG_UNROLL                                                              \
      for (int i = 0; i < vg_traits<V>::lanes; ++i) y[i] = name((E)x[i]);    \
      return y;                                                              \
    }                                                                        \
  }
VG_BY_LANE(vg_sqrt, __builtin_sqrtf, __builtin_sqrt)
VG_BY_LANE(vg_floor, __builtin_floorf, __builtin_floor)
// in float where a polynomial does not reach, in double everywhere
VG_BY_LANE(vg_erf64, __builtin_erff, __builtin_erf)
VG_BY_LANE(vg_sin64, __builtin_sinf, __builtin_sin)
VG_BY_LANE(vg_cos64, __builtin_cosf, __builtin_cos)
VG_BY_LANE(vg_log1p64, __builtin_log1pf, __builtin_log1p)
VG_BY_LANE(vg_expm164, __builtin_expm1f, __builtin_expm1)
VG_BY_LANE(vg_exp64, __builtin_expf, __builtin_exp)
VG_BY_LANE(vg_log64, __builtin_logf, __builtin_log)
VG_BY_LANE(vg_tanh64, __builtin_tanhf, __builtin_tanh)

template <class V> static inline V vg_fma(V a, V b, V c);  // products.h

// exp(r) - 1 of what is left of x beside n ln(2), |r| <= ln(2) / 2, by a polynomial; gives n, too.
template <class V> static inline V vg_exp_rest(V x, V& n) {
  n = vg_fma<V>(x, vg_set<V>(1.44269504088896341f), vg_set<V>(12582912.0f)) - 12582912.0f;
  V r = vg_fma<V>(n, vg_set<V>(-0.693359375f), x);
  r = vg_fma<V>(n, vg_set<V>(2.12194440e-4f), r);
  V p = vg_fma<V>(r, vg_set<V>(1.9875691500e-4f), vg_set<V>(1.3981999507e-3f));
  p = vg_fma<V>(p, r, vg_set<V>(8.3334519073e-3f));
  p = vg_fma<V>(p, r, vg_set<V>(4.1665795894e-2f));
  p = vg_fma<V>(p, r, vg_set<V>(1.6666665459e-1f));
  p = vg_fma<V>(p, r, vg_set<V>(5.0000001201e-1f));
  return vg_fma<V>(p * r, r, r);
}

// exp by 2^n * p(r), |r| <= ln(2) / 2; the power of two is applied in two halves so that subnormal results
// and the largest finite ones come out right. Below -104 the result is 0, above 88.73 infinite.
template <class V> static inline V vg_exp(V x) {
  if constexpr (sizeof(vg_elem<V>) == 8) {
    return vg_exp64(x);
  } else {
    typedef vg_bits<V> I;
    V c = vg_select<V>(x < -104.0f, -104.0f, x);
    c = vg_select<V>(c > 88.8f, 88.8f, c);
    V n;
    V p = vg_exp_rest<V>(c, n) + 1.0f;
    I k = vg_cast<int32_t>(vg_select<V>(x != x, 0.0f, n));
    I half = k >> 1;
    V y = p * vg_as<V>((half + 127) << 23) * vg_as<V>((k - half + 127) << 23);
    return vg_select<V>(x != x, x, y);
  }
}

// log by exponent and a polynomial on [sqrt(1/2), sqrt(2)); subnormal numbers are scaled first.
template <class V> static inline V vg_log(V x) {
  if constexpr (sizeof(vg_elem<V>) == 8) {
    return vg_log64(x);
  } else {
    typedef vg_bits<V> I;
    V scaled = vg_select<V>(x < 1.17549435e-38f, x * 16777216.0f, x);
    V shift = vg_select<V>(x < 1.17549435e-38f, -24.0f, 0.0f);
    I bits = vg_as<I>(scaled);
    V e = vg_cast<float>((I)(((bits >> 23) & 0xff) - 126));
    V m = vg_as<V>((I)((bits & 0x007fffff) | 0x3f000000));
    V n = vg_select<V>(m < 0.707106781186547524f, e - 1.0f, e) + shift;
    m = vg_select<V>(m < 0.707106781186547524f, m + m - 1.0f, m - 1.0f);
    V z = m * m;
    V p = m * 7.0376836292e-2f - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    V y = m * z * p + n * -2.12194440e-4f;
    y = y - z * 0.5f;
    y = (m + y) + n * 0.693359375f;
    y = vg_select<V>(x == (float)vg_inf, x, y);
    y = vg_select<V>(x == 0.0f, -(float)vg_inf, y);
    return vg_select<V>(vg_or(x < 0.0f, x != x), (float)vg_nan, y);
  }
}

template <class V> static inline V vg_abs(V x) {
  typedef vg_bits<V> I;
  typedef vg_elem<I> E;
  return vg_as<V>((I)(vg_as<I>(x) & (E)~((E)1 << (sizeof(E) * 8 - 1))));
}
template <class V> static inline V vg_relu(V x) { return vg_select<V>(x < vg_elem<V>(0), vg_elem<V>(0), x); }  // NaN stays
// exp(-|x|), whose power of two is 2^64 times too large until the end, so that subnormal results come out right. What is
// made of the same x by several functions (a softplus, its derivative) shares it.
template <class V> static inline V vg_exp_below(V x) {
  V low = -vg_abs(x);
  if constexpr (sizeof(vg_elem<V>) == 8) {
    return vg_exp64(low);
  } else {
    typedef vg_t<uint32_t, vg_traits<V>::lanes> U;  // of a NaN n is one, whose bits a shift takes out of a signed number
    V n;
    V p = vg_exp_rest<V>(vg_select<V>(low < -104.0f, -104.0f, low), n) + 1.0f;
    U k = vg_as<U>((V)(n + 12582912.0f)) - (0x4b400000u - 127 - 64);  // n + 191: that float's last bit counts 1
    return p * vg_as<V>((U)(k << 23)) * 0x1p-64f;
  }
}
template <class V> static inline V vg_logistic(V x) {
  V z = vg_exp_below(x);
  return vg_select<V>(x < vg_elem<V>(0), z, vg_elem<V>(1)) / (vg_elem<V>(1) + z);
}
template <class V> static inline V vg_sigmoid(V x) {  // 0 where it would be subnormal, as torch's
  V y = vg_logistic(x);
  if constexpr (sizeof(vg_elem<V>) == 4) return vg_select<V>(y < 1.17549435e-38f, 0.0f, y);
  else return y;
}
template <class V> static inline V vg_sign(V x) {
  typedef vg_elem<V> E;
  return vg_select<V>(x > E(0), E(1), vg_select<V>(x < E(0), E(-1), E(0)));  // of NaN 0, as torch's
}

// tanh: an odd polynomial near zero (where 1 - 2 / (e^2x + 1) would cancel), the exponential elsewhere.
template <class V> static inline V vg_tanh(V x) {
  if constexpr (sizeof(vg_elem<V>) == 8) {
    return vg_tanh64(x);
  } else {
    V a = vg_abs(x);
    V z = x * x;
    V p = vg_fma<V>(z, vg_set<V>(-5.70498872745e-3f), vg_set<V>(2.06390887954e-2f));
    p = vg_fma<V>(p, z, vg_set<V>(-5.37397155531e-2f));
    p = vg_fma<V>(p, z, vg_set<V>(1.33314422036e-1f));
    p = vg_fma<V>(p, z, vg_set<V>(-3.33332819422e-1f));
    p = vg_fma<V>(p, z, vg_set<V>(1.0f)) * x;
    V y = 1.0f - 2.0f / (vg_exp(a * 2.0f) + 1.0f);
    return vg_select<V>(a < 0.625f, p, vg_select<V>(x < 0.0f, -y, y));
  }
}

// log(1 + x) by log: what 1 + x was rounded to is divided out again.
template <class V> static inline V vg_log1p(V x) {
  if constexpr (sizeof(vg_elem<V>) == 8) {
    return vg_log1p64(x);
  } else {
    V u = x + 1.0f;
    V y = vg_log(u) * (x / (u - 1.0f));
    y = vg_select<V>(x == (float)vg_inf, x, y);
    return vg_select<V>(u == 1.0f, x, y);
  }
}

// log(1 + exp(x)): how far it is from the larger of x and 0 is a polynomial of what exp gives then, 0 to 1.
template <class V> static inline V vg_softplus(V x) {
  if constexpr (sizeof(vg_elem<V>) == 8) {
    return vg_log1p64(vg_exp64(x));
  } else {
    V z = vg_exp_below(x);
    V p = vg_fma<V>(z, vg_set<V>(-0.0032439809292554855f), vg_set<V>(0.019851263612508774f));
    p = vg_fma<V>(p, z, vg_set<V>(-0.056959159672260284f));
    p = vg_fma<V>(p, z, vg_set<V>(0.10603617131710052f));
    p = vg_fma<V>(p, z, vg_set<V>(-0.15305569767951965f));
    p = vg_fma<V>(p, z, vg_set<V>(0.19675931334495544f));
    p = vg_fma<V>(p, z, vg_set<V>(-0.24954132735729218f));
    p = vg_fma<V>(p, z, vg_set<V>(0.3332996368408203f));
    p = vg_fma<V>(p, z, vg_set<V>(-0.4999990165233612f));
    p = vg_fma<V>(p, z, vg_set<V>(1.0f));
    return vg_fma<V>(p, z, vg_relu(x));
  }
}

// exp(x) - 1 by 2^n * (p(r) - 1) + (2^n - 1), as vg_exp; 2^(n - 1), so that the largest finite results come out right.
template <class V> static inline V vg_expm1(V x) {
  if constexpr (sizeof(vg_elem<V>) == 8) {
    return vg_expm164(x);
  } else {
    typedef vg_bits<V> I;
    V c = vg_select<V>(x < -18.0f, -18.0f, x);
    c = vg_select<V>(c > 88.8f, 88.8f, c);
    V n;
    V p = vg_exp_rest<V>(c, n);
    I k = vg_cast<int32_t>(vg_select<V>(x != x, 0.0f, n));
    V half = vg_as<V>((k + 126) << 23);
    V y = vg_fma<V>(half, p, half - 0.5f) * 2.0f;
    return vg_select<V>(vg_or(x == 0.0f, x != x), x, y);
  }
}

// erf: x times a polynomial of x^2 up to 1; beyond, 1 - exp(-q(x)), where q fits -log(1 - erf(x)) up to 4.
template <class V> static inline V vg_erf(V x) {
  if constexpr (sizeof(vg_elem<V>) == 8) {
    return vg_erf64(x);
  } else {
    V a = vg_abs(x), z = x * x;
    V p = vg_fma<V>(z, vg_set<V>(7.853857823647559e-05f), vg_set<V>(-0.0008010192541405559f));
    p = vg_fma<V>(p, z, vg_set<V>(0.005188327748328447f));
    p = vg_fma<V>(p, z, vg_set<V>(-0.026853810995817184f));
    p = vg_fma<V>(p, z, vg_set<V>(0.1128358542919159f));
    p = vg_fma<V>(p, z, vg_set<V>(-0.3761262595653534f));
    p = vg_fma<V>(p, z, vg_set<V>(1.1283791065216064f));
    V c = vg_select<V>(a > 4.0f, 4.0f, a);
    V q = vg_fma<V>(c, vg_set<V>(0.0011603300226852298f), vg_set<V>(-0.014858394861221313f));
    q = vg_fma<V>(q, c, vg_set<V>(0.08888834714889526f));
    q = vg_fma<V>(q, c, vg_set<V>(0.6540955305099487f));
    q = vg_fma<V>(q, c, vg_set<V>(1.1177364587783813f));
    q = vg_fma<V>(q, c, vg_set<V>(0.0025832580868154764f));
    V y = 1.0f - vg_exp(-q);
    return vg_select<V>(a < 1.0f, p * x, vg_select<V>(x != x, x, vg_select<V>(x < 0.0f, -y, y)));
  }
}

// sin and cos: polynomials on what is left beside the nearest multiple of pi / 2, which is taken off in four parts. Of
// up to 4,095 multiples the first three parts are exact; where a lane is beyond, all lanes are the library's.
template <class V> static inline bool vg_is_near(V x) {
  if constexpr (vg_traits<V>::lanes == 1) {
    return vg_abs(x) <= 6000.0f;
  } else {
    bool near = true;
    VG_UNROLL for (int i = 0; i < vg_traits<V>::lanes; ++i) near &= __builtin_fabsf(x[i]) <= 6000.0f;
    return near;
  }
}
template <class V> static inline V vg_wave(V x, int32_t quarter) {
  typedef vg_bits<V> I;
  V n = vg_fma<V>(x, vg_set<V>(0.636619772367581343f), vg_set<V>(12582912.0f)) - 12582912.0f;
  V r = vg_fma<V>(n, vg_set<V>(-1.5703125f), x);
  r = vg_fma<V>(n, vg_set<V>(-0.0004837512969970703f), r);
  r = vg_fma<V>(n, vg_set<V>(-7.549533620476723e-08f), r);
  r = vg_fma<V>(n, vg_set<V>(-2.5633440682570896e-12f), r);
  V z = r * r;
  V s = vg_fma<V>(z, vg_set<V>(2.7163821414433187e-06f), vg_set<V>(-0.0001983909314731136f));
  s = vg_fma<V>(s, z, vg_set<V>(0.008333328180015087f));
  s = vg_fma<V>(s, z, vg_set<V>(-0.1666666716337204f));
  s = vg_fma<V>(s, z, vg_set<V>(1.0f)) * r;
  V c = vg_fma<V>(z, vg_set<V>(2.4431239580735564e-05f), vg_set<V>(-0.0013887305976822972f));
  c = vg_fma<V>(c, z, vg_set<V>(0.04166664555668831f));
  c = vg_fma<V>(c * z, z, 1.0f - z * 0.5f);
  I k = vg_cast<int32_t>(n) + quarter;
  V y = vg_select<V>((k & 1) == 0, s, c);
  return vg_select<V>((k & 2) == 0, y, -y);
}
template <class V> static inline V vg_sin(V x) {
  if constexpr (sizeof(vg_elem<V>) == 8) return vg_sin64(x);
  else return vg_is_near(x) ? vg_wave(x, 0) : vg_sin64(x);
}
template <class V> static inline V vg_cos(V x) {
  if constexpr (sizeof(vg_elem<V>) == 8) return vg_cos64(x);
  else return vg_is_near(x) ? vg_wave(x, 1) : vg_cos64(x);
}

// ---------------------------------------------------------------- sums over lanes, extrema with their place
template <class V> static inline vg_elem<V> vg_lane_sum(V x) {
  if constexpr (vg_traits<V>::lanes == 1) {
    return x;
  } else {
    constexpr int half = vg_traits<V>::lanes / 2;
    typedef vg_t<vg_elem<V>, half> H;
    H low, high;
    __builtin_memcpy(&low, &x, sizeof(H));
    __builtin_memcpy(&high, (const char*)&x + sizeof(H), sizeof(H));
    return vg_lane_sum((H)(low + high));
  }
}
template <class V> static inline V vg_iota() {  // 0, 1, 2 ...
  V v = V();
  if constexpr (vg_traits<V>::lanes > 1) VG_UNROLL for (int i = 0; i < vg_traits<V>::lanes; ++i) v[i] = (vg_elem<V>)i;
  return v;
}
#if __has_builtin(__builtin_shufflevector)
template <int L, int S, class V, int... I> static inline V vg_halves(V x, vg_list<I...>) {  // each L lanes, half as many sums
  if constexpr (S == 1) return x;
  else return vg_halves<L, S / 2>((V)(x + __builtin_shufflevector(x, x, (I ^ (S / 2))...)), vg_list<I...>());
}
template <int L, class V, int... I> static inline auto vg_firsts(V x, vg_list<I...>) {
  return __builtin_shufflevector(x, x, (I * L)...);
}
template <int L, class V> static inline auto vg_sums(V x) {  // of every L neighbours, in a vector of the sums
  constexpr int lanes = vg_traits<V>::lanes;
  V all = vg_halves<L, L>(x, typename vg_count<lanes>::type());
  return vg_firsts<L>(all, typename vg_count<lanes / L>::type());
}
// Of R rows, each a vector: neighbours are added up in pairs, first within 16 bytes, where processors shuffle for the
// least, and every step puts what is left of two rows into one vector. So eight rows of eight numbers take seven
// additions, not as many as each row takes alone.
template <int G, int U, int odd, class V, int... I> static inline V vg_every_other(V x, V y, vg_list<I...>) {
  constexpr int W = vg_traits<V>::lanes, half = G / U / 2;  // of every G lanes, units of U: half of x, then half of y
  return __builtin_shufflevector(
      x, y, ((I / G * G + (2 * (I % G / U % half) + odd) * U + I % U) + (I % G / U < half ? 0 : W))...);
}
template <int R, int S, class V> static inline V vg_in_pairs(const V* rows) {  // S: numbers that each row still has
  constexpr int W = vg_traits<V>::lanes, near = 16 / (int)sizeof(vg_elem<V>), unit = W < near ? W : near;
  if constexpr (S == 1) {
    return rows[0];
  } else {
    constexpr bool inside = W / S < unit;
    constexpr int G = inside ? unit : W, U = inside ? 1 : unit, left = (R + 1) / 2;
    V next[left];
    VG_UNROLL for (int i = 0; i < left; ++i) {
      V x = rows[2 * i], y = rows[R == 1 ? 0 : 2 * i + 1];
      typename vg_count<W>::type lanes;
      next[i] = vg_every_other<G, U, 0>(x, y, lanes) + vg_every_other<G, U, 1>(x, y, lanes);
    }
    return vg_in_pairs<left, S / 2>(next);
  }
}
template <int R, class V> static inline vg_t<vg_elem<V>, R> vg_row_sums(const V* rows) {  // R: a power of two
  vg_t<vg_elem<V>, R> sums;
  V all = vg_in_pairs<R, vg_traits<V>::lanes>(rows);
  __builtin_memcpy(&sums, &all, sizeof(sums));
  return sums;
}
#else
template <int L, class V> static inline auto vg_sums(V x) {
  vg_t<vg_elem<V>, vg_traits<V>::lanes / L> sums{};
  VG_UNROLL for (int i = 0; i < vg_traits<V>::lanes; ++i) sums[i / L] += x[i];
  return sums;
}
template <int R, class V> static inline vg_t<vg_elem<V>, R> vg_row_sums(const V* rows) {
  vg_t<vg_elem<V>, R> sums;
  VG_UNROLL for (int i = 0; i < R; ++i) sums[i] = vg_lane_sum(rows[i]);
  return sums;
}
#endif
template <int R, class E, class V> static inline void vg_add_row_sums(E* place, const V* rows, E scale) {
  constexpr int W = vg_traits<V>::lanes;
  if constexpr (R == 1) {
    place[0] += vg_lane_sum(rows[0]) * scale;
  } else {
    constexpr int most = R < W ? R : W, part = 1 << (31 - __builtin_clz(most));
    vg_store<part>(place, vg_load<part>(place) + vg_row_sums<part>(rows) * scale);
    if constexpr (part < R) vg_add_row_sums<R - part>(place + part, rows + part, scale);
  }
}
template <class V> static inline V vg_last(V x, int count) {  // zeros but in the last ``count`` lanes
  if constexpr (vg_traits<V>::lanes == 1) return x;
  else return vg_select<V>(vg_iota<vg_bits<V>>() >= (vg_elem<vg_bits<V>>)(vg_traits<V>::lanes - count), x, vg_elem<V>(0));
}
template <bool largest, class V, class P> static inline void vg_extremum(V& best, P& place, V x, int32_t position) {
  if constexpr (vg_traits<V>::lanes == 1) {
    bool better = position == 0 || (largest ? x > best : x < best) || (x != x && best == best);
    place = better ? position : place;
    best = better ? x : best;
  } else {
    auto better = (largest ? x > best : x < best) | ((x != x) & (best == best));
    place = position == 0 ? P{} : vg_cast<int32_t>(better) ? vg_set<P>(position) : place;
    best = position == 0 ? x : better ? x : best;
  }
}

template <bool largest, class V> static inline void vg_extreme(V& best, V x, bool is_first) {
  if constexpr (vg_traits<V>::lanes == 1) {
    best = is_first || (largest ? x > best : x < best) || x != x ? x : best;
  } else {
    auto better = (largest ? x > best : x < best) | (x != x);
    best = is_first ? x : better ? x : best;
  }
}

// ---------------------------------------------------------------- sums of exp(x - peak) while the peak still rises
template <class V> static inline V vg_finite(V peak) {  // what is nothing but -inf lies 0 above it: its weight is 0
  return vg_select<V>(peak == -(vg_elem<V>)vg_inf, vg_elem<V>(0), peak);
}
template <class V> static inline V vg_fade(V was, V peak) {  // what sums relative to the peak before are multiplied with
  return vg_select<V>(was == -(vg_elem<V>)vg_inf, vg_elem<V>(1), vg_exp((V)(was - peak)));
}
template <class V, class P> static inline V vg_settle(V sum, P peak, bool has_edges) {  // torch's softmax of -inf is NaN
  if (!has_edges) return sum;
  return vg_select<V>(vg_set<V>(peak) == -(vg_elem<V>)vg_inf, (vg_elem<V>)vg_nan, sum);
}

// ---------------------------------------------------------------- random numbers by (seed, number, row, column)
template <class U> static inline U vg_mix(U bits) {
  bits = (bits ^ (bits >> 30)) * (uint64_t)0xbf58476d1ce4e5b9u;
  bits = (bits ^ (bits >> 27)) * (uint64_t)0x94d049bb133111ebu;
  return bits ^ (bits >> 31);
}
template <int W> static inline vg_t<int64_t, W> vg_random(int64_t seed, int64_t number, int64_t row, int64_t column) {
  typedef vg_t<uint64_t, W> U;
  uint64_t key = vg_mix((uint64_t)seed + vg_mix((uint64_t)number + 1));
  U columns = vg_mix((U)(vg_iota<U>() + (uint64_t)(column + 1)));
  return vg_as<vg_t<int64_t, W>>((U)(vg_mix((U)(columns ^ vg_mix((uint64_t)row + key))) >> 11));
}
template <int W> static inline vg_t<double, W> vg_uniform64(vg_t<int64_t, W> bits) {
  return vg_cast<double>(bits) * 0x1p-53;
}
template <int W> static inline vg_t<float, W> vg_uniform32(vg_t<int64_t, W> bits) {  // AVX2 converts 32 bits, not 64
  return vg_cast<float>(vg_cast<int32_t>((vg_t<int64_t, W>)(bits >> 29))) * 0x1p-24f;
}
// 1 where bits < limit, else 0, by the sign of what is left: nothing is compared.
template <int W> static inline vg_t<int32_t, W> vg_is_below(vg_t<int64_t, W> bits, int64_t limit) {
  typedef vg_t<uint64_t, W> U;
  return vg_cast<int32_t>((U)((U)(bits - limit) >> 63));
}

#include "products.h"
#include "edges.h"
#include "threads.h"
