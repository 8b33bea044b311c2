// Another processor that runs kernels for this one: a program of its own, without a C library, under an emulator.
// It has no memory but what its kernels touch: the pages of the process that calls are fetched when a kernel first
// reads or writes them, and what changed is sent back after the call, byte by byte, so that the caller's own memory
// beside it stays. Functions of the mathematical library are asked of the caller too.
// Read after the kernels' sources, which give ``machine_functions``.
#define MACHINE_EXPORT extern "C" __attribute__((used))

static long machine_call(long number, long a, long b, long c, long d = 0, long e = 0, long f = 0) {
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c, x3 __asm__("x3") = d;
  register long x4 __asm__("x4") = e, x5 __asm__("x5") = f;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
}
static void machine_end(long code) { for (;;) machine_call(94, code, 0, 0); }
static void machine_write(const void* from, long count) {
  for (const char* at = (const char*)from; count > 0;) {
    const long done = machine_call(64, 1, (long)at, count);
    if (done <= 0) machine_end(3);
    at += done, count -= done;
  }
}
static void machine_read(void* to, long count) {
  for (char* at = (char*)to; count > 0;) {
    const long done = machine_call(63, 0, (long)at, count);
    if (done <= 0) machine_end(0);  // the caller is gone
    at += done, count -= done;
  }
}

// What is sent: a kind and two numbers; the caller's answers have no head.
enum { MACHINE_READY, MACHINE_PAGE, MACHINE_CHANGED, MACHINE_MATH, MACHINE_DONE, MACHINE_TAKEN };
static void machine_say(int64_t kind, int64_t a, int64_t b) {
  const int64_t words[3] = {kind, a, b};
  machine_write(words, sizeof(words));
}

// ---------------------------------------------------------------- memory
constexpr long machine_page = 4096, machine_most = 8192;
static char machine_twins[machine_most][machine_page];  // pages as they came
static char* machine_pages[machine_most];
static long machine_count;

static void machine_fetch(int, void* info, void*) {
  char* page = (char*)(*(long*)((char*)info + 16) & -machine_page);
  if (machine_count == machine_most) machine_end(4);
  const long got = machine_call(222, (long)page, machine_page, 3, 0x22, -1, 0);
  if ((char*)got != page) {  // the emulator's own memory lies there
    machine_say(MACHINE_TAKEN, (long)page, got);
    machine_end(5);
  }
  machine_say(MACHINE_PAGE, (long)page, 0);
  char* twin = machine_twins[machine_count];
  machine_read(twin, machine_page);
  __builtin_memcpy(page, twin, machine_page);
  machine_pages[machine_count++] = page;
}
static void machine_give_back() {
  for (long i = 0; i < machine_count; ++i) {
    const char *now = machine_pages[i], *then = machine_twins[i];
    for (long at = 0, end; at < machine_page; at = end) {
      for (end = at; end < machine_page && (now[end] == then[end]) == (now[at] == then[at]); ++end) {}
      if (now[at] == then[at]) continue;
      machine_say(MACHINE_CHANGED, (long)(now + at), end - at);
      machine_write(now + at, end - at);
    }
    machine_call(215, (long)now, machine_page, 0);
  }
  machine_count = 0;
}

MACHINE_EXPORT void* memcpy(void* to, const void* from, __SIZE_TYPE__ count) {
  for (__SIZE_TYPE__ i = 0; i < count; ++i) ((volatile char*)to)[i] = ((const char*)from)[i];
  return to;
}
MACHINE_EXPORT void* memset(void* to, int byte, __SIZE_TYPE__ count) {
  for (__SIZE_TYPE__ i = 0; i < count; ++i) ((volatile char*)to)[i] = (char)byte;
  return to;
}
static char machine_heap[1 << 24];
static __SIZE_TYPE__ machine_used;
MACHINE_EXPORT void* malloc(__SIZE_TYPE__ count) {
  char* at = machine_heap + machine_used;
  machine_used += (count + 63) & ~(__SIZE_TYPE__)63;
  if (machine_used > sizeof(machine_heap)) machine_end(6);
  return at;
}
MACHINE_EXPORT void free(void*) {}  // a call's memory is free when it ends

// ---------------------------------------------------------------- what the caller has
template <class T> static T machine_ask(int64_t function, T x) {
  double wide = (double)x, y;
  int64_t bits;
  __builtin_memcpy(&bits, &wide, 8);
  machine_say(MACHINE_MATH, function, bits);
  machine_read(&y, 8);
  return (T)y;
}
#define MACHINE_MATH_OF(number, name)                                                       \
  MACHINE_EXPORT float name##f(float x) { return machine_ask<float>(2 * number, x); }       \
  MACHINE_EXPORT double name(double x) { return machine_ask<double>(2 * number + 1, x); }
MACHINE_MATH_OF(0, erf)
MACHINE_MATH_OF(1, sin)
MACHINE_MATH_OF(2, cos)
MACHINE_MATH_OF(3, log1p)
MACHINE_MATH_OF(4, expm1)
MACHINE_MATH_OF(5, exp)
MACHINE_MATH_OF(6, log)
MACHINE_MATH_OF(7, tanh)

static int32_t machine_pool(int64_t begin, int64_t end, int64_t, void (*work)(int64_t, int64_t, void*), void* context) {
  const int64_t middle = begin + (end - begin + 1) / 2;
  work(begin, middle, context);
  if (middle < end) work(middle, end, context);
  return 0;
}

MACHINE_EXPORT void _start() {
  struct { void (*handler)(int, void*, void*); unsigned long flags; void* restorer; unsigned long mask; } act = {machine_fetch, 4, nullptr, 0};
  if (machine_call(134, 11, (long)&act, 0, 8) != 0) machine_end(7);
  machine_say(MACHINE_READY, sizeof(machine_functions) / sizeof(machine_functions[0]), (long)machine_pool);
  machine_write(machine_functions, sizeof(machine_functions));
  for (;;) {
    int64_t words[2];
    machine_read(words, sizeof(words));
    machine_used = 0;
    ((void (*)(void*))words[0])((void*)words[1]);
    machine_give_back();
    machine_say(MACHINE_DONE, 0, 0);
  }
}
