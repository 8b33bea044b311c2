// A GPU's block of threads on a CPU: one fiber a thread, which runs until it must wait for others.
// Unmodified CUDA source is compiled behind this header. Blocks run one after the other; lanes that take part in
// a shuffle must do so in equal number, or the run ends with a message. Races show only where the order of fibers
// (vg_backwards) changes a result. The blocks of a cooperative launch run at once, each fiber until it sleeps.
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define __device__
#define __global__
#define __host__
#define __constant__ static
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)

static inline float vg_float_of_half(uint16_t half) {  // not every compiler has a type for them
  const int exponent = half >> 10 & 31, digits = half & 1023;
  const float size = exponent == 31 ? (digits ? NAN : INFINITY)
                     : exponent ? ldexpf((float)(digits + 1024), exponent - 25) : ldexpf((float)digits, -24);
  return half >> 15 ? -size : size;
}
static inline uint16_t vg_half_of_float(float x) {  // to nearest, ties to even
  const float size = fabsf(x);
  const uint16_t sign = signbit(x) ? 0x8000 : 0;
  if (size != size) return sign | 0x7e00;
  if (size >= 65520) return sign | 0x7c00;
  int exponent;
  frexpf(size, &exponent);
  exponent = size == 0 || exponent < -13 ? -13 : exponent;
  const int digits = (int)nearbyintf(ldexpf(size, 11 - exponent));  // carries into the exponent as it should
  return sign | (uint16_t)(digits + ((exponent + 13) << 10));
}

struct vg_index { unsigned x, y, z; };
static vg_index threadIdx, blockIdx, blockDim, gridDim;

// A block's own memory, as much as the launch asked for: more blocks than that never run at once.
constexpr int vg_most_blocks = 8, vg_most_room = 1 << 18;
alignas(64) static char vg_rooms[vg_most_blocks][vg_most_room];
static int vg_slot;  // of the running block among those that run at once
#define vg_room vg_rooms[vg_slot]

struct vg_barrier { uint32_t mask; int arrived; unsigned turn; };
struct vg_fiber {
  ucontext_t first;
  jmp_buf here;
  bool started, done;
  vg_barrier* waits;
  unsigned turn;
};
constexpr int vg_most_threads = 2048, vg_stack = 1 << 16, vg_kinds = 64;
static vg_fiber vg_fibers[vg_most_threads];
static vg_barrier vg_barriers[vg_most_threads / 32][vg_kinds], vg_whole[vg_most_blocks];
static uint64_t vg_held[vg_most_threads];
static char* vg_stacks;
static jmp_buf vg_scheduler;
static int vg_current, vg_threads, vg_fibers_now;  // the running fiber, threads a block, fibers of all blocks at once
static void (*vg_entry)(const int64_t*);
static const int64_t* vg_words;
static int64_t vg_asked;  // bytes of a block's own memory
extern "C" { int vg_backwards; }

static void vg_fiber_main() {
  vg_entry(vg_words);
  vg_fibers[vg_current].done = true;
  _longjmp(vg_scheduler, 1);
}
static void vg_wait(vg_barrier* b, int wanted) {
  vg_fiber* f = &vg_fibers[vg_current];
  const unsigned turn = b->turn;
  if (++b->arrived == wanted) {
    b->arrived = 0;
    b->turn++;
    return;
  }
  f->waits = b;
  f->turn = turn;
  if (!_setjmp(f->here)) _longjmp(vg_scheduler, 1);
}
static vg_barrier* vg_barrier_of(uint32_t mask) {
  vg_barrier* row = vg_barriers[vg_current / 32];
  for (int i = 0; i < vg_kinds; ++i) {
    if (!row[i].mask) row[i].mask = mask;
    if (row[i].mask == mask) return &row[i];
  }
  fprintf(stderr, "shim: more than %d masks in one warp\n", vg_kinds);
  abort();
}
static inline void __syncthreads() { vg_wait(&vg_whole[vg_slot], vg_threads); }
static inline void __threadfence() {}
static inline uint32_t atomicAdd(uint32_t* p, uint32_t more) { return (*p += more) - more; }
static inline void __nanosleep(unsigned) {  // the others' turn
  if (!_setjmp(vg_fibers[vg_current].here)) _longjmp(vg_scheduler, 1);
}
static inline void __syncwarp(uint32_t mask = 0xffffffffu) {
  if (!(mask >> (vg_current & 31) & 1)) { fprintf(stderr, "shim: a lane waits for others only\n"); abort(); }
  vg_wait(vg_barrier_of(mask), __builtin_popcount(mask));
}
template <class T> static inline T vg_exchange(uint32_t mask, T x, int from) {
  static_assert(sizeof(T) <= 8, "a shuffle moves 8 bytes at most");
  memcpy(&vg_held[vg_current], &x, sizeof(T));
  __syncwarp(mask);
  T y;
  memcpy(&y, &vg_held[(vg_current & ~31) + from], sizeof(T));
  __syncwarp(mask);
  return y;
}
template <class T> static inline T __shfl_xor_sync(uint32_t mask, T x, int across, int = 32) {
  return vg_exchange(mask, x, (vg_current & 31) ^ across);
}
template <class T> static inline T __shfl_sync(uint32_t mask, T x, int from, int width = 32) {
  const int lane = vg_current & 31;
  return vg_exchange(mask, x, (lane & ~(width - 1)) | (from & (width - 1)));
}
template <class T> static inline T __shfl_down_sync(uint32_t mask, T x, unsigned by, int width = 32) {
  const int lane = vg_current & 31, from = lane + (int)by;
  return vg_exchange(mask, x, (from & ~(width - 1)) == (lane & ~(width - 1)) ? from : lane);
}

static void vg_start(int i) {
  vg_fiber* f = &vg_fibers[i];
  getcontext(&f->first);
  f->first.uc_stack.ss_sp = vg_stacks + (size_t)i * vg_stack;
  f->first.uc_stack.ss_size = vg_stack;
  f->first.uc_link = 0;
  makecontext(&f->first, vg_fiber_main, 0);
  f->started = true;
  setcontext(&f->first);
}
static bool vg_run_some() {  // every fiber that can go on, once
  volatile bool moved = false;
  for (volatile int k = 0; k < vg_fibers_now; k = k + 1) {
    const int i = vg_backwards ? vg_fibers_now - 1 - k : k;
    vg_fiber* f = &vg_fibers[i];
    if (f->done || (f->waits && f->waits->turn == f->turn)) continue;
    f->waits = 0;
    moved = true;
    vg_current = i;
    const unsigned t = i % vg_threads;
    vg_slot = i / vg_threads;
    if (vg_fibers_now > vg_threads) blockIdx.x = vg_slot;
    threadIdx = {t % blockDim.x, t / blockDim.x % blockDim.y, t / blockDim.x / blockDim.y};
    if (_setjmp(vg_scheduler)) continue;
    if (f->started) _longjmp(f->here, 1);
    vg_start(i);
  }
  return moved;
}
static void vg_blocks_at_once(int number) {
  vg_fibers_now = number * vg_threads;
  memset(vg_whole, 0, sizeof(vg_whole));
  memset(vg_barriers, 0, sizeof(vg_barriers));
  for (int i = 0; i < vg_fibers_now; ++i) vg_fibers[i].started = vg_fibers[i].done = false, vg_fibers[i].waits = 0;
  for (int i = 0; i < number; ++i) memset(vg_rooms[i], 0xff, vg_asked);  // what nobody wrote is no number
  while (vg_run_some()) {
  }
  for (int i = 0; i < vg_fibers_now; ++i) {
    if (vg_fibers[i].done) continue;
    fprintf(stderr, "shim: thread %d of block %u waits for lanes that never come\n", i % vg_threads, blockIdx.x);
    abort();
  }
}
// more: bytes of a block's own memory, and whether all blocks are resident together
static void vg_launch(
    void (*entry)(const int64_t*), const int64_t* words, const int64_t* grid, const int64_t* block, const int64_t* more) {
  if (!vg_stacks) vg_stacks = (char*)malloc((size_t)vg_most_threads * vg_stack);
  vg_entry = entry;
  vg_words = words;
  gridDim = {(unsigned)grid[0], (unsigned)grid[1], (unsigned)grid[2]};
  blockDim = {(unsigned)block[0], (unsigned)block[1], (unsigned)block[2]};
  vg_threads = (int)(block[0] * block[1] * block[2]);
  const int number = more[1] ? (int)grid[0] : 1;
  vg_asked = more[0];
  if (vg_asked > vg_most_room || number > vg_most_blocks || vg_threads * number > vg_most_threads) {
    fprintf(stderr, "shim: %d blocks of %d threads and %ld bytes at once\n", number, vg_threads, (long)vg_asked);
    abort();
  }
  if (more[1]) {
    blockIdx = {0, 0, 0};
    vg_blocks_at_once(number);
    return;
  }
  for (unsigned z = 0; z < gridDim.z; ++z)
    for (unsigned y = 0; y < gridDim.y; ++y)
      for (unsigned x = 0; x < gridDim.x; ++x) {
        blockIdx = {x, y, z};
        vg_blocks_at_once(1);
      }
}
