// A GPU's block of threads on a CPU: one fiber a thread, which runs until it must wait for others.
// Unmodified CUDA source is compiled behind this header. Blocks run one after the other; lanes that take part in
// a shuffle must do so in equal number, or the run ends with a message. Races show only where the order of fibers
// (vg_backwards) changes a result.
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

struct vg_index { unsigned x, y, z; };
static vg_index threadIdx, blockIdx, blockDim, gridDim;

struct vg_barrier { uint32_t mask; int arrived; unsigned turn; };
struct vg_fiber {
  ucontext_t first;
  jmp_buf here;
  bool started, done;
  vg_barrier* waits;
  unsigned turn;
};
constexpr int vg_most_threads = 1024, vg_stack = 1 << 16, vg_kinds = 64;
static vg_fiber vg_fibers[vg_most_threads];
static vg_barrier vg_barriers[vg_most_threads / 32][vg_kinds], vg_whole;
static uint64_t vg_held[vg_most_threads];
static char* vg_stacks;
static jmp_buf vg_scheduler;
static int vg_current, vg_threads, vg_live;
static void (*vg_entry)(const int64_t*);
static const int64_t* vg_words;
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
static inline void __syncthreads() { vg_wait(&vg_whole, vg_live); }
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
  for (volatile int k = 0; k < vg_threads; k = k + 1) {
    const int i = vg_backwards ? vg_threads - 1 - k : k;
    vg_fiber* f = &vg_fibers[i];
    if (f->done || (f->waits && f->waits->turn == f->turn)) continue;
    f->waits = 0;
    moved = true;
    vg_current = i;
    threadIdx = {(unsigned)i % blockDim.x, (unsigned)i / blockDim.x % blockDim.y, (unsigned)i / blockDim.x / blockDim.y};
    if (_setjmp(vg_scheduler)) continue;
    if (f->started) _longjmp(f->here, 1);
    vg_start(i);
  }
  return moved;
}
static void vg_block_of_threads() {
  vg_live = vg_threads;
  vg_whole = vg_barrier{0, 0, 0};
  memset(vg_barriers, 0, sizeof(vg_barriers));
  for (int i = 0; i < vg_threads; ++i) vg_fibers[i].started = vg_fibers[i].done = false, vg_fibers[i].waits = 0;
  while (vg_run_some()) {
  }
  for (int i = 0; i < vg_threads; ++i) {
    if (vg_fibers[i].done) continue;
    fprintf(stderr, "shim: thread %d of block %u waits for lanes that never come\n", i, blockIdx.x);
    abort();
  }
}
static void vg_launch(void (*entry)(const int64_t*), const int64_t* words, const int64_t* grid, const int64_t* block) {
  if (!vg_stacks) vg_stacks = (char*)malloc((size_t)vg_most_threads * vg_stack);
  vg_entry = entry;
  vg_words = words;
  gridDim = {(unsigned)grid[0], (unsigned)grid[1], (unsigned)grid[2]};
  blockDim = {(unsigned)block[0], (unsigned)block[1], (unsigned)block[2]};
  vg_threads = (int)(block[0] * block[1] * block[2]);
  if (vg_threads > vg_most_threads) { fprintf(stderr, "shim: %d threads a block\n", vg_threads); abort(); }
  for (unsigned z = 0; z < gridDim.z; ++z)
    for (unsigned y = 0; y < gridDim.y; ++y)
      for (unsigned x = 0; x < gridDim.x; ++x) {
        blockIdx = {x, y, z};
        vg_block_of_threads();
      }
}
