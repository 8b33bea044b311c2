// Threads of torch's own pool, on pieces of about equal work: each takes those of its share, then what is left.
// Part of prelude.h.
// What a function of one array of numbers gives: whether there was no memory. Most need none.
template <class A> static inline int64_t vg_status(void (*function)(A*), int64_t* a) { function(a); return 0; }
template <class A> static inline int64_t vg_status(int64_t (*function)(A*), int64_t* a) { return function(a); }

typedef void (*vg_range)(int64_t, int64_t, void*);
typedef int32_t (*vg_parallel_for)(int64_t, int64_t, int64_t, vg_range, void*);
extern "C" void* malloc(__SIZE_TYPE__);
extern "C" void free(void*);

// Gives whether there was no memory; then what it writes is not whole.
typedef int64_t (*vg_body)(int64_t begin, int64_t end, int64_t piece, void* context);
constexpr int64_t vg_most_pieces = 512;  // eight for each of 64 threads, so that one that is late holds up little
constexpr int64_t vg_most_sums = 64;     // pieces that have sums of their own, which are added up afterwards

struct vg_work {
  int64_t begin, end, pieces;
  const int64_t* ptr;
  vg_body body;
  void* context;
  int64_t failed;                 // in some piece
  char is_taken[vg_most_pieces];  // by some thread
};
static inline void vg_fail(int64_t* failed) { __atomic_store_n(failed, 1, __ATOMIC_RELAXED); }
static inline bool vg_has_failed(const int64_t* failed) { return __atomic_load_n(failed, __ATOMIC_RELAXED) != 0; }
static inline char* vg_on_line(void* p) { return (char*)(((uint64_t)p + 63) / 64 * 64); }  // where a cache line begins
static inline int64_t vg_cut(const vg_work* w, int64_t piece) {  // the first row of a piece
  int64_t rows = w->end - w->begin, first = w->ptr ? w->ptr[w->begin] : 0;
  int64_t all = rows + (w->ptr ? w->ptr[w->end] - first : 0);
  int64_t target = (int64_t)((double)all * (double)piece / (double)w->pieces);
  if (piece >= w->pieces) return w->end;
  if (!w->ptr) return w->begin + target;
  int64_t low = w->begin, high = w->end;
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (w->ptr[middle] - first + middle - w->begin < target) low = middle + 1; else high = middle;
  }
  return low;
}
static inline bool vg_takes(vg_work* w, int64_t piece) {  // whether nobody has had it
  return !__atomic_load_n(&w->is_taken[piece], __ATOMIC_RELAXED) && !__atomic_exchange_n(&w->is_taken[piece], 1, __ATOMIC_RELAXED);
}
// A thread takes its own share first: the same rows in every loop, which lie in memory near to it, since it was the
// first to write them. Then it takes what others have not begun.
static void vg_take(int64_t first, int64_t, void* context) {
  vg_work* w = (vg_work*)context;
  for (int64_t i = 0; i < w->pieces; ++i) {
    const int64_t piece = first + i < w->pieces ? first + i : first + i - w->pieces;
    if (!vg_takes(w, piece)) continue;
    const int64_t begin = vg_cut(w, piece), end = vg_cut(w, piece + 1);
    if (begin < end && !vg_has_failed(&w->failed) && w->body(begin, end, piece, w->context)) vg_fail(&w->failed);
  }
}
// How many pieces of the work have sums of their own; ``rows``: rows and edges that these are worth.
static inline int64_t vg_num_sums(int64_t begin, int64_t end, const int64_t* ptr, int64_t rows) {
  const int64_t num = (end - begin + (ptr ? ptr[end] - ptr[begin] : 0)) / rows;
  return num < 1 ? 1 : num < vg_most_sums ? num : vg_most_sums;
}
// ``cost``: about how many numbers a row or an edge takes. Where the cuts lie depends on the work alone.
// Gives whether some piece found no memory.
static inline int64_t vg_run(int64_t begin, int64_t end, const int64_t* ptr, int64_t cost, vg_body body, void* context, void* pool, int64_t most = vg_most_pieces) {
  int64_t work = (end - begin + (ptr ? ptr[end] - ptr[begin] : 0)) * cost;
  if (end - begin < 2 || work < 32768 || pool == nullptr) {
    return body(begin, end, 0, context);
  }
  int64_t pieces = work / 16384;
  pieces = pieces < most ? pieces : most;
  vg_work w = {begin, end, pieces < end - begin ? pieces : end - begin, ptr, body, context, 0, {0}};
  ((vg_parallel_for)pool)(0, w.pieces, 1, vg_take, &w);
  return w.failed;
}
