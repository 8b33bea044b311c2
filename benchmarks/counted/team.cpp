// A team of threads played by one: every share of a parallel loop runs after the other, and its processor time is
// counted. Loaded before libgomp, whose functions these replace; ``team_for`` stands for torch's parallel_for.
#include <cstdint>
#include <ctime>

static int size = 64;  // of the team
static thread_local int number = 0, players = 1;
static thread_local int64_t loops = 0;
static thread_local double work = 0, longest = 0;  // nanoseconds in parallel loops, and of the longest shares of each

static double now() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}
static void count(double spent, double most) { ++loops, work += spent, longest += most; }

extern "C" {
int omp_get_thread_num() { return number; }
int omp_get_num_threads() { return players; }
int omp_get_max_threads() { return players > 1 ? 1 : size; }
int omp_in_parallel() { return players > 1; }

void GOMP_parallel(void (*body)(void*), void* data, unsigned asked, unsigned) {
  const int before = number, outer = players, all = asked ? (int)asked : size;
  if (outer > 1 || all < 2) {  // a loop within a loop, or of one thread
    number = 0, players = 1;
    body(data);
    number = before, players = outer;
    return;
  }
  double spent = 0, most = 0;
  players = all;
  for (number = 0; number < all; ++number) {
    const double begun = now();
    body(data);
    const double took = now() - begun;
    spent += took, most = took > most ? took : most;
  }
  number = before, players = outer;
  count(spent, most);
}

// Pieces are taken in turn, so that they are counted as equal: the longest share is that of whole pieces.
int32_t team_for(int64_t begin, int64_t end, int64_t grain, void (*body)(int64_t, int64_t, void*), void* context) {
  const int64_t pieces = (end - begin + (grain > 1 ? grain : 1) - 1) / (grain > 1 ? grain : 1);
  const double begun = now();
  body(begin, end, context);
  if (pieces < 2 || players > 1) return 0;
  const double spent = now() - begun;
  count(spent, spent * (double)((pieces + size - 1) / size) / (double)pieces);
  return 0;
}

void team_size(int64_t threads) { size = (int)threads; }
// Nanoseconds of this thread outside of parallel loops.
int64_t team_serial() { return (int64_t)(now() - work); }
// Writes nanoseconds of this thread, those in parallel loops, those of the longest shares; and how many loops.
void team_read(double* out) { out[0] = now(), out[1] = work, out[2] = longest, out[3] = (double)loops; }
}
