// Prelude of every generated kernel for the CPU: functions of one number that the compiler can vectorise
// (no branches, no calls), and the way into torch's own thread pool.
// It includes no header of the C++ library, whose parsing would take longer than the kernel.
#include <stdint.h>

#define vg_inf __builtin_inf()
#define vg_nan __builtin_nan("")

typedef void (*vg_range)(int64_t, int64_t, void*);
typedef int32_t (*vg_parallel_for)(int64_t, int64_t, int64_t, vg_range, void*);

static inline float vg_bits_to_float(int32_t i) { float f; __builtin_memcpy(&f, &i, 4); return f; }
static inline int32_t vg_float_to_bits(float f) { int32_t i; __builtin_memcpy(&i, &f, 4); return i; }

// exp by 2^n * p(r), |r| <= ln(2) / 2; the power of two is applied in two halves so that subnormal results
// and the largest finite ones come out right. Below -104 the result is 0, above 88.73 infinite.
static inline float vg_exp(float x) {
  float c = x < -104.0f ? -104.0f : x;
  c = c > 88.8f ? 88.8f : c;
  float n = c * 1.44269504088896341f;
  n = (n + 12582912.0f) - 12582912.0f;
  float r = c - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  int32_t k = (int32_t)n;
  int32_t half = k >> 1;
  float y = p * vg_bits_to_float((half + 127) << 23) * vg_bits_to_float((k - half + 127) << 23);
  return x != x ? x : y;
}
static inline double vg_exp(double x) { return __builtin_exp(x); }

// log by exponent and a polynomial on [sqrt(1/2), sqrt(2)); subnormal numbers are scaled first.
static inline float vg_log(float x) {
  float scaled = x < 1.17549435e-38f ? x * 16777216.0f : x;
  float shift = x < 1.17549435e-38f ? -24.0f : 0.0f;
  int32_t bits = vg_float_to_bits(scaled);
  int32_t e = ((bits >> 23) & 0xff) - 126;
  float m = vg_bits_to_float((bits & 0x007fffff) | 0x3f000000);
  bool low = m < 0.707106781186547524f;
  m = low ? m + m - 1.0f : m - 1.0f;
  float n = (float)(low ? e - 1 : e) + shift;
  float z = m * m;
  float p = 7.0376836292e-2f;
  p = p * m - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m - 1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m - 2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  float y = m * z * p;
  y = y + n * -2.12194440e-4f;
  y = y - 0.5f * z;
  y = (m + y) + n * 0.693359375f;
  y = x == (float)vg_inf ? x : y;
  y = x == 0.0f ? -(float)vg_inf : y;
  return x < 0.0f || x != x ? (float)vg_nan : y;
}
static inline double vg_log(double x) { return __builtin_log(x); }

static inline float vg_sqrt(float x) { return __builtin_sqrtf(x); }
static inline double vg_sqrt(double x) { return __builtin_sqrt(x); }
static inline float vg_abs(float x) { return __builtin_fabsf(x); }
static inline double vg_abs(double x) { return __builtin_fabs(x); }
template <class T> static inline T vg_relu(T x) { return x < T(0) ? T(0) : x; }  // NaN stays NaN

static inline float vg_sigmoid(float x) { return 1.0f / (1.0f + vg_exp(-x)); }
static inline double vg_sigmoid(double x) { return 1.0 / (1.0 + __builtin_exp(-x)); }

// tanh: an odd polynomial near zero (where 1 - 2 / (e^2x + 1) would cancel), the exponential elsewhere.
static inline float vg_tanh(float x) {
  float a = vg_abs(x);
  float z = x * x;
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  p = p * z * x + x;
  float y = 1.0f - 2.0f / (vg_exp(2.0f * a) + 1.0f);
  y = x < 0.0f ? -y : y;
  return a < 0.625f ? p : y;
}
static inline double vg_tanh(double x) { return __builtin_tanh(x); }

static inline void vg_run(int64_t begin, int64_t end, int64_t work, vg_range body, void* context, void* pool) {
  if (end - begin < 2 || work < 32768 || pool == nullptr) {
    body(begin, end, context);
    return;
  }
  int64_t grain = (end - begin) * 16384 / work;
  ((vg_parallel_for)pool)(begin, end, grain < 1 ? 1 : grain, body, context);
}
