// The loop over frontiers: a list of instructions run for every frontier, a chunk of its vertices at a time, so
// that what one instruction makes is still in the cache when the next reads it. Chunks of a frontier go to the
// threads of torch's pool, each of which runs the whole list on its chunk: one barrier a frontier.
#include "gemm.h"

enum { KERNEL, GEMM, COPY, TAKE, PUT, GATHER, USER };

// Where a thread's chunk lies: its temporary rows, and which of them need no copy, since what would be gathered lies
// in one piece already.
struct vg_room {
  char* scratch;
  int64_t num_views;
  struct { int64_t first, stop; char* at; } views[8];  // bytes of scratch that stand for rows elsewhere
};

// A place is (base, bytes from row to row, kind, bytes a row of what it lies in): kind 0 and 1 are rows of all vertices
// and of all edges; 2 and 3 those of a chunk alone, at base bytes in the thread's scratch. Where all vertices have as
// many in-edges, rows of edges may lie in rows of vertices, or rows of vertices in those of edges: then the two differ.
static inline char* vg_place(const int64_t* p, const int64_t* bounds, const vg_room& room) {
  const int64_t kind = p[2];
  if (kind < 2) return (char*)p[0] + bounds[2 * kind] * p[3];
  for (int64_t i = 0; i < room.num_views; ++i)
    if (p[0] >= room.views[i].first && p[0] < room.views[i].stop) return room.views[i].at + (p[0] - room.views[i].first);
  return room.scratch + p[0];
}

constexpr int64_t vg_most_slots = 512;

struct vg_loop {
  const int64_t* code; int64_t num_words;
  const int64_t* in_ptr;
  char* scratch; int64_t scratch_bytes;
  int64_t chunk;
  int32_t busy[vg_most_slots]; int64_t num_slots;  // pieces of scratch, taken and given back by threads
  int64_t v0, v1;
  int64_t failed;  // whether some thread found no memory: see threads.h
};

template <class T> static void vg_gemm_part(const int64_t* w, const int64_t* bounds, const vg_room& scratch) {
  const int64_t edges = w[1], n = w[2], k = w[3];
  vg_gemm_call<T> g;
  g.n = n; g.k = k; g.adds = w[6] != 0; g.bias = (const T*)w[5]; g.b = (const T*)w[4];
  g.a = (const T*)vg_place(w + 8, bounds, scratch); g.row = w[9] / sizeof(T); g.column = 1;
  g.c = (T*)vg_place(w + 12, bounds, scratch); g.step_c = w[13] / sizeof(T);
  vg_gemm_packed<T>(0, bounds[2 * edges + 1] - bounds[2 * edges], &g);
}

static void vg_slots(const int64_t* w, const int64_t* in_ptr, const int64_t* bounds, const vg_room& scratch, bool is_take) {
  const int64_t slot = w[1], bytes = w[2], num_edges = bounds[3] - bounds[2];
  const char* from = vg_place(w + 3, bounds, scratch);
  char* to = vg_place(w + 7, bounds, scratch);
  if (!is_take) for (int64_t e = 0; e < num_edges; ++e) __builtin_memset(to + e * w[8], 0, bytes);
  for (int64_t v = bounds[0]; v < bounds[1]; ++v) {
    const int64_t edge = in_ptr[v] + slot, row = v - bounds[0];
    const bool is_there = edge < in_ptr[v + 1];
    if (is_take && is_there) __builtin_memcpy(to + row * w[8], from + (edge - bounds[2]) * w[4], bytes);
    if (is_take && !is_there) __builtin_memset(to + row * w[8], 0, bytes);
    if (!is_take && is_there) __builtin_memcpy(to + (edge - bounds[2]) * w[8], from + row * w[4], bytes);
  }
}

// Whether rows of edges can be read where they lie: rows of tails one after the other, or one in-edge a vertex.
static bool vg_lies_in_order(const int64_t* w, const int64_t* in_ptr, const int64_t* bounds) {
  const int32_t* ids = (const int32_t*)w[3];
  const int64_t first = bounds[2], last = bounds[3] - 1;
  if (w[1]) {
    if (last < first || ids[last] - ids[first] != last - first) return false;
    for (int64_t e = first; e < last; ++e) if (ids[e + 1] != ids[e] + 1) return false;
    return true;
  }
  for (int64_t v = bounds[0]; v < bounds[1]; ++v) if (in_ptr[v + 1] - in_ptr[v] != 1) return false;
  return true;
}

// The row at the tail of each in-edge, wherever it lies, or that of the vertex itself.
static void vg_gather_rows(const int64_t* w, const int64_t* in_ptr, const int64_t* bounds, vg_room& scratch) {
  const int64_t bytes = w[2], step = w[5];
  const int32_t* ids = (const int32_t*)w[3];
  if (w[10] >= 2 && step == w[9] && scratch.num_views < 8 && vg_lies_in_order(w, in_ptr, bounds)) {
    char* at = w[1] ? (char*)w[4] + ids[bounds[2]] * step : vg_place(w + 4, bounds, scratch);
    scratch.views[scratch.num_views++] = {w[8], w[8] + w[11], at};
    return;
  }
  char* to = vg_place(w + 8, bounds, scratch);
  if (w[1]) {
    const char* all = (const char*)w[4];
    for (int64_t e = bounds[2]; e < bounds[3]; ++e, to += w[9]) __builtin_memcpy(to, all + ids[e] * step, bytes);
    return;
  }
  const char* own = vg_place(w + 4, bounds, scratch);
  for (int64_t v = bounds[0]; v < bounds[1]; ++v, own += step)
    for (int64_t e = in_ptr[v]; e < in_ptr[v + 1]; ++e, to += w[9]) __builtin_memcpy(to, own, bytes);
}

// Rows to or from where the user's order has them; without ids that is the order of rows.
static void vg_user_rows(const int64_t* w, const int64_t* bounds, const vg_room& scratch) {
  const int64_t bytes = w[2], step = w[5], other = w[9];
  const int64_t* ids = (const int64_t*)w[3];
  char *here = vg_place(w + 4, bounds, scratch), *all = (char*)w[8];
  for (int64_t v = bounds[0]; v < bounds[1]; ++v, here += step) {
    char* there = all + (ids == nullptr ? v : ids[v]) * other;
    if (w[1]) __builtin_memcpy(there, here, bytes);
    else __builtin_memcpy(here, there, bytes);
  }
}

// Its arguments are put at the beginning of the thread's scratch, which has room for those of every kernel of the loop.
// Gives whether there was no memory.
static int64_t vg_kernel_part(const int64_t* w, const int64_t* bounds, const vg_room& scratch) {
  const int64_t* given = (const int64_t*)w[2];
  const int64_t count = w[3], patches = w[4];
  int64_t* a = (int64_t*)scratch.scratch;
  for (int64_t i = 0; i < count; ++i) a[i] = given[i];
  for (int64_t i = 0; i < patches; ++i) {  // arguments in scratch: as if all rows lay there
    const int64_t* p = w + 5 + 5 * i;
    a[p[0]] = (int64_t)(vg_place(p + 1, bounds, scratch) - bounds[2 * (p[3] & 1)] * p[2]);
  }
  a[0] = bounds[0]; a[1] = bounds[1]; a[2] = 0;
  return ((int64_t (*)(const int64_t*))w[1])(a);
}

// Gives whether there was no memory; what comes after has not run then.
static int64_t vg_run_code(const vg_loop& loop, const int64_t* bounds, char* place) {
  vg_room scratch = {place, 0, {}};
  const int64_t *w = loop.code, *end = loop.code + loop.num_words;
  for (; w < end; w += w[0] >> 8) {  // a word of kind and length begins each
    const int64_t* body = w;
    switch (w[0] & 255) {
      case KERNEL: if (vg_kernel_part(body, bounds, scratch)) return 1; break;
      case GEMM: body[7] == 4 ? vg_gemm_part<float>(body, bounds, scratch) : vg_gemm_part<double>(body, bounds, scratch); break;
      case COPY: {
        const int64_t rows = bounds[2 * body[1] + 1] - bounds[2 * body[1]];
        const char* from = vg_place(body + 3, bounds, scratch);
        char* to = vg_place(body + 7, bounds, scratch);
        for (int64_t i = 0; i < rows; ++i) __builtin_memcpy(to + i * body[8], from + i * body[4], body[2]);
        break;
      }
      case GATHER: vg_gather_rows(body, loop.in_ptr, bounds, scratch); break;
      case USER: vg_user_rows(body, bounds, scratch); break;
      case TAKE: vg_slots(body, loop.in_ptr, bounds, scratch, true); break;
      case PUT: vg_slots(body, loop.in_ptr, bounds, scratch, false); break;
    }
  }
  return 0;
}

static void vg_chunks(int64_t begin, int64_t end, void* context) {
  vg_loop& loop = *(vg_loop*)context;
  int64_t slot = 0;
  while (__atomic_exchange_n(&loop.busy[slot], 1, __ATOMIC_ACQUIRE)) slot = slot + 1 < loop.num_slots ? slot + 1 : 0;
  char* scratch = loop.scratch + slot * loop.scratch_bytes;
  for (int64_t i = begin; i < end && !vg_has_failed(&loop.failed); ++i) {
    const int64_t v0 = loop.v0 + i * loop.chunk;
    const int64_t v1 = v0 + loop.chunk < loop.v1 ? v0 + loop.chunk : loop.v1;
    const int64_t bounds[4] = {v0, v1, loop.in_ptr[v0], loop.in_ptr[v1]};
    if (vg_run_code(loop, bounds, scratch)) vg_fail(&loop.failed);
  }
  __atomic_store_n(&loop.busy[slot], 0, __ATOMIC_RELEASE);
}

// a: code, words, in_ptr, scratch, bytes of scratch a slot, rows a chunk, slots (at most 512), pool, work a vertex and
// an edge, then first frontier, one past the last, and vertex rows where frontiers begin; walks down if last < first.
// Gives whether there was no memory: then what it writes is not whole.
extern "C" int64_t vg_frontiers(const int64_t* a) {
  vg_loop loop;
  loop.failed = 0;
  loop.code = (const int64_t*)a[0]; loop.num_words = a[1]; loop.in_ptr = (const int64_t*)a[2];
  loop.scratch = (char*)a[3]; loop.scratch_bytes = a[4]; loop.num_slots = a[6];
  for (int64_t i = 0; i < loop.num_slots; ++i) loop.busy[i] = 0;
  const int64_t *v_ptr = (const int64_t*)a[12], most = a[5];
  const int64_t step = a[11] < a[10] ? -1 : 1;
  for (int64_t i = a[10]; i != a[11] && !loop.failed; i += step) {
    loop.v0 = v_ptr[i]; loop.v1 = v_ptr[i + 1];
    const int64_t n = loop.v1 - loop.v0;
    const int64_t work = n * a[8] + (loop.in_ptr[loop.v1] - loop.in_ptr[loop.v0]) * a[9];
    const bool is_shared = a[7] != 0 && n > 1 && work > 1500000;
    loop.chunk = most;
    if (is_shared) {  // every thread has as many chunks
      const int64_t rounds = (n + most * a[6] - 1) / (most * a[6]);
      loop.chunk = (n + rounds * a[6] - 1) / (rounds * a[6]);
    }
    const int64_t chunks = (n + loop.chunk - 1) / loop.chunk;
    if (is_shared) ((vg_parallel_for)a[7])(0, chunks, 1, vg_chunks, &loop);
    else vg_chunks(0, chunks, &loop);
  }
  return loop.failed;
}

struct vg_matrices { const int64_t* jobs; int64_t first[32], count; };

template <class T> static vg_packing<T> vg_packing_of(const int64_t* job) {
  return {job[1], job[2], (const T*)job[3], job[4], job[5], (T*)job[6], nullptr};
}

static void vg_pack_some(int64_t begin, int64_t end, void* context) {
  const vg_matrices& all = *(const vg_matrices*)context;
  for (int64_t i = 0; i < all.count; ++i) {
    const int64_t *job = all.jobs + 7 * i, low = all.first[i], high = all.first[i + 1];
    const int64_t from = (begin > low ? begin : low) - low, to = (end < high ? end : high) - low;
    if (from >= to) continue;
    if (job[0] == 4) { vg_packing<float> one = vg_packing_of<float>(job); vg_pack_pieces<float>(from, to, &one); }
    else { vg_packing<double> one = vg_packing_of<double>(job); vg_pack_pieces<double>(from, to, &one); }
  }
}

// Matrices packed, by all threads. a: how many (at most 31), of each bytes of a number, k, n, matrix, its steps from
// row to row and from column to column, place; then the pool
extern "C" void vg_pack_matrices(const int64_t* a) {
  vg_matrices all = {a + 1, {0}, a[0]};
  int64_t numbers = 0;
  for (int64_t i = 0; i < all.count; ++i) {
    const int64_t* job = all.jobs + 7 * i;
    all.first[i + 1] = all.first[i] + (job[0] == 4 ? vg_packing_of<float>(job).pieces() : vg_packing_of<double>(job).pieces());
    numbers += job[1] * job[2];
  }
  const int64_t pieces = all.first[all.count], pool = a[1 + 7 * all.count];
  if (pool != 0 && numbers > 30000) ((vg_parallel_for)pool)(0, pieces, 1, vg_pack_some, &all);
  else vg_pack_some(0, pieces, &all);
}

// Instructions with the addresses of one step. a: words, how many, and how many of them take an address; where those
// are and the number of what each adds; then the numbers that are added, of which the first is the place itself
extern "C" void vg_bind(const int64_t* a) {
  const int64_t *words = (const int64_t*)a[0], *places = (const int64_t*)a[3], *which = (const int64_t*)a[4], *bases = a + 5;
  int64_t* to = (int64_t*)bases[0];
  __builtin_memcpy(to, words, a[1] * sizeof(int64_t));
  for (int64_t i = 0; i < a[2]; ++i) to[places[i]] += bases[which[i]];
}

constexpr int64_t vg_group = 1 << 21;  // bytes of B that are packed at a time, and then multiplied

template <class T> struct vg_tiles { vg_gemm_call<T>* g; int64_t m; };

template <class T> static void vg_gemm_tiles(int64_t begin, int64_t end, void* context) {
  const vg_tiles<T>& tiles = *(const vg_tiles<T>*)context;
  vg_gemm_packed<T>(begin * VG_ROWS, end * VG_ROWS < tiles.m ? end * VG_ROWS : tiles.m, tiles.g);
}

// Steps of depth whose rows of B fill the room.
template <class T> static int64_t vg_group_depth(int64_t k, int64_t n) {
  const int64_t blocks = vg_group / (VG_DEPTH * (int64_t)sizeof(T) * (n > 0 ? n : 1)), depth = (blocks > 1 ? blocks : 1) * VG_DEPTH;
  return k < depth ? k : depth;
}

template <class T> static void vg_product_of(const int64_t* a) {
  const int64_t m = a[0], n = a[1], k = a[2], group = vg_group_depth<T>(k, n), flops = 2 * m * n * k;
  const bool is_shared = a[13] != 0 && flops > 4000000;
  int64_t first = 0;
  do {
    const int64_t stop = k - first < group ? k : first + group;
    const T* left = (const T*)a[3] + first * a[5];
    vg_gemm_call<T> g = {n, stop - first, left, (const T*)a[9], (const T*)a[12], (T*)a[10], a[4], a[5], a[11], first > 0};
    const int32_t* ids = a[15] == 0 ? nullptr : (const int32_t*)a[15] + first;
    const T* right = (const T*)a[6] + (ids == nullptr ? first * a[7] : 0);
    vg_packing<T> packing = {stop - first, n, right, a[7], a[8], (T*)a[9], ids};
    if (is_shared) {
      ((vg_parallel_for)a[13])(0, packing.pieces(), 1, vg_pack_pieces<T>, &packing);
      const int64_t grain = 2000000 / (2 * VG_ROWS * n * (stop - first) + 1);  // whole tiles, about equal work
      vg_tiles<T> tiles = {&g, m};
      ((vg_parallel_for)a[13])(0, (m + VG_ROWS - 1) / VG_ROWS, grain < 1 ? 1 : grain, vg_gemm_tiles<T>, &tiles);
    } else {
      vg_pack_pieces<T>(0, packing.pieces(), &packing);
      vg_gemm_packed<T>(0, m, &g);
    }
    first = stop;
  } while (first < k);
}

// a: m, n, k, A and its steps, B and its steps, room for B packed, C, its step, bias or 0, pool, bytes of a number,
// ids of the rows of B (int32) or 0
extern "C" void vg_product(const int64_t* a) { a[14] == 4 ? vg_product_of<float>(a) : vg_product_of<double>(a); }

// a: bytes of a number, columns, depth of a product or 0; gives: bytes of a packed row of so many columns, or of
// the room that such a product needs
extern "C" void vg_packed_bytes(int64_t* a) {
  const bool is_single = a[0] == 4;
  const int64_t depth = a[2] == 0 ? 1 : is_single ? vg_group_depth<float>(a[2], a[1]) : vg_group_depth<double>(a[2], a[1]);
  a[0] = is_single ? 4 * vg_packed_size<float>(depth, a[1]) : 8 * vg_packed_size<double>(depth, a[1]);
}
