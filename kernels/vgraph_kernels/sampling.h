// Sampling: edges drawn from adjacency lists, and ids renumbered as they are first seen.
//
// Every number is a function of (key, vertex, slot): what is drawn does not depend on threads, nor on
// which other vertices are asked for. vgraph/graphs/draw/random_numbers.py computes the same in NumPy.
#pragma once
#include <stdint.h>
#include "threads.h"

static inline uint64_t vg_mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

static inline uint64_t vg_draw(uint64_t key, uint64_t vertex, uint64_t slot) {
  return vg_mix(key ^ vg_mix(vertex * 0x9e3779b97f4a7c15ull + slot));
}

// Below n, for n up to 2^32.
static inline int64_t vg_below(uint64_t drawn, uint64_t n) { return (int64_t)(((drawn >> 32) * n) >> 32); }

constexpr int64_t vg_lanes = 16;  // numbers that are compared at once
constexpr int64_t vg_few = 48;    // so many are put in order by counting, for each, those below it

// Floyd's numbers as they are drawn, before any is replaced because it was drawn before: none waits for another.
static inline void vg_candidates(uint64_t key, int64_t vertex, int64_t n, int64_t k, int64_t padded, int32_t* drawn) {
  for (int64_t i = 0; i < padded; ++i) drawn[i] = (int32_t)vg_below(vg_draw(key, vertex, i), n - k + i + 1);
  for (int64_t i = k; i < padded; ++i) drawn[i] = 0x7fffffff;  // above all others
}

// Puts k numbers in order; whether they all differ, else ``out`` is of no use.
static inline bool vg_order_few(const int32_t* drawn, int64_t k, int64_t padded, int64_t* out) {
  int32_t below[vg_few];
  for (int64_t i = 0; i < padded; ++i) below[i] = 0;
  for (int64_t first = 0; first < padded; first += vg_lanes) {
    for (int64_t i = 0; i < k; ++i) {
      for (int64_t lane = 0; lane < vg_lanes; ++lane) below[first + lane] += drawn[i] < drawn[first + lane];
    }
  }
  uint64_t ranks = 0;  // two that are equal have one rank
  for (int64_t i = 0; i < k; ++i) ranks |= 1ull << below[i], out[below[i]] = drawn[i];
  return ranks == (1ull << k) - 1;
}

// Floyd's method as below, for few numbers below fewer than 2^31.
static void vg_choose_few(uint64_t key, int64_t vertex, int64_t n, int64_t k, int64_t* out, uint64_t* bits) {
  int32_t drawn[vg_few];
  const int64_t padded = (k + vg_lanes - 1) / vg_lanes * vg_lanes;
  vg_candidates(key, vertex, n, k, padded, drawn);
  if (n <= 64) {  // all bits are one number, which is in order
    uint64_t taken = 0;
    for (int64_t i = 0; i < k; ++i) taken |= 1ull << (taken >> drawn[i] & 1 ? n - k + i : drawn[i]);
    for (int64_t i = 0; i < k; ++i, taken &= taken - 1) out[i] = __builtin_ctzll(taken);
    return;
  }
  if (2 * n > k * k && vg_order_few(drawn, k, padded, out)) return;  // likely none was drawn twice
  for (int64_t i = 0; i < k; ++i) {
    const int64_t at = bits[drawn[i] >> 6] >> (drawn[i] & 63) & 1 ? n - k + i : drawn[i];
    bits[at >> 6] |= 1ull << (at & 63);
    drawn[i] = (int32_t)at;
  }
  vg_order_few(drawn, k, padded, out);
  for (int64_t i = 0; i < k; ++i) bits[out[i] >> 6] = 0;
}

// Floyd's method: k different numbers below n, ascending; ``bits``: n of them, all 0 before and after.
static void vg_choose(uint64_t key, int64_t vertex, int64_t n, int64_t k, int64_t* out, uint64_t* bits) {
  if (k <= vg_few && n < 0x7fffffff) return vg_choose_few(key, vertex, n, k, out, bits);
  for (int64_t i = 0; i < k; ++i) {
    const int64_t last = n - k + i;
    int64_t at = vg_below(vg_draw(key, vertex, i), last + 1);
    if (bits[at >> 6] >> (at & 63) & 1) at = last;
    bits[at >> 6] |= 1ull << (at & 63);
  }
  int64_t found = 0;
  for (int64_t word = 0; word < (n + 63) / 64; ++word) {
    for (uint64_t rest = bits[word]; rest; rest &= rest - 1) out[found++] = word * 64 + __builtin_ctzll(rest);
    bits[word] = 0;
  }
}

// Adjacency lists of consecutive vertices, each range of them (a part) in arrays of its own. A table has one row a part,
// by vertices, and one more, where all ends. Places count the entries of all lists, part after part.
struct vg_part {
  int64_t first_vertex, first_place;
  const int64_t* ptr;  // of the part's own places, from 0
  const char* other;
  int64_t other_width;
  const char* edge_ids;  // nullptr: places are the ids
  int64_t edge_width;
  const char* names;  // nullptr: a vertex's draws follow from its number; else from what stands here
  int64_t name_width;
};

static inline int64_t vg_read(const char* numbers, int64_t width, int64_t at) {
  return width == 4 ? ((const int32_t*)numbers)[at] : ((const int64_t*)numbers)[at];
}

// The last part whose ``first`` is not above a number; ``hint``: where the number before was.
template <class P>
static inline int64_t vg_find_part(const P* parts, int64_t count, int64_t hint, int64_t of, int64_t P::*first) {
  if (parts[hint].*first <= of && of < parts[hint + 1].*first) return hint;
  int64_t low = 0, high = count;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    if (parts[middle].*first <= of) low = middle; else high = middle;
  }
  return low;
}

static int64_t vg_spans_some(int64_t first, int64_t last, int64_t, void* context) {
  const int64_t* a = (const int64_t*)context;
  const int64_t* vertices = (const int64_t*)a[0];
  const vg_part* parts = (const vg_part*)a[2];
  int64_t *begin = (int64_t*)a[4], *length = (int64_t*)a[5], *names = (int64_t*)a[6];
  for (int64_t i = first, at = 0; i < last; ++i) {
    at = vg_find_part(parts, a[3], at, vertices[i], &vg_part::first_vertex);
    const vg_part* part = parts + at;
    const int64_t local = vertices[i] - part->first_vertex;
    begin[i] = part->first_place + part->ptr[local], length[i] = part->ptr[local + 1] - part->ptr[local];
    names[i] = part->names ? vg_read(part->names, part->name_width, local) : vertices[i];
  }
  return 0;
}

// Where the lists of some vertices begin, how long they are, and what draws from them follow from.
// a: vertices, number of them, parts, number of them, out places, out lengths, out names, pool.
static int64_t vg_spans(int64_t* a) { return vg_run(0, a[1], nullptr, 16, vg_spans_some, a, (void*)a[7]); }

constexpr int64_t vg_ahead = 16;  // so many entries before one is needed it is asked for

// Reads other ends as places of lists become known: each is asked for at once, and read when enough others were.
struct vg_reader {
  const vg_part* parts;
  int64_t count, at, done;
  const int64_t* places;
  int64_t* out;  // nullptr: nothing is read
};

static inline void vg_ask(vg_reader* r, int64_t first, int64_t last) {
  for (int64_t j = first; j < last; ++j) {
    r->at = vg_find_part(r->parts, r->count, r->at, r->places[j], &vg_part::first_place);
    const vg_part* part = r->parts + r->at;
    __builtin_prefetch(part->other + (r->places[j] - part->first_place) * part->other_width);
  }
}

static inline void vg_read_up_to(vg_reader* r, int64_t last) {
  int64_t at = r->at;
  for (; r->done < last; ++r->done) {
    at = vg_find_part(r->parts, r->count, at, r->places[r->done], &vg_part::first_place);
    r->out[r->done] = vg_read(r->parts[at].other, r->parts[at].other_width, r->places[r->done] - r->parts[at].first_place);
  }
}

static int64_t vg_sample_some(int64_t first, int64_t last, int64_t, void* context) {
  const int64_t* a = (const int64_t*)context;
  const uint64_t key = (uint64_t)a[0];
  const int64_t *begins = (const int64_t*)a[1], *degrees = (const int64_t*)a[3], *out_ptr = (const int64_t*)a[6];
  const int64_t* names = (const int64_t*)a[10];
  int64_t *out = (int64_t*)a[7], *owner = (int64_t*)a[8];
  const int64_t fanout = a[4];
  int64_t longest = 0;
  for (int64_t i = first; i < last; ++i) longest = degrees[i] > longest ? degrees[i] : longest;
  const int64_t bytes = (longest / 64 + 1) * 8;
  uint64_t* bits = (uint64_t*)malloc(bytes);
  if (bits == nullptr) return 1;
  __builtin_memset(bits, 0, bytes);
  vg_reader reader = {(const vg_part*)a[11], a[12], 0, out_ptr[first], out, (int64_t*)a[13]};
  for (int64_t i = first; i < last; ++i) {
    const int64_t v = names[i], begin = begins[i], degree = degrees[i], count = out_ptr[i + 1] - out_ptr[i];
    int64_t *mine = out + out_ptr[i], *own = owner + out_ptr[i];
    if (a[5]) {
      for (int64_t j = 0; j < count; ++j) mine[j] = vg_below(vg_draw(key, v, j), degree);
    } else if (fanout < 0 || degree <= fanout) {
      for (int64_t j = 0; j < count; ++j) mine[j] = j;
    } else {
      vg_choose(key, v, degree, fanout, mine, bits);
    }
    for (int64_t j = 0; j < count; ++j) mine[j] += begin, own[j] = i;
    if (reader.out) {
      vg_ask(&reader, out_ptr[i], out_ptr[i + 1]);
      if (out_ptr[i] - reader.done > 8 * vg_ahead) vg_read_up_to(&reader, out_ptr[i]);
    }
  }
  if (reader.out) vg_read_up_to(&reader, out_ptr[last]);
  free(bits);
  return 0;
}

// a: key, places where lists begin, number of them, their lengths, fanout (-1: all), with replacement, out_ptr,
// out places, out which list each is of, pool, what draws from each list follow from; parts, number of them, out other
// ends (or 0: they are not read).
static int64_t vg_sample(int64_t* a) {
  return vg_run(0, a[2], (const int64_t*)a[6], 16, vg_sample_some, a, (void*)a[9]);
}

static int64_t vg_fetch_some(int64_t first, int64_t last, int64_t, void* context) {
  const int64_t* a = (const int64_t*)context;
  const int64_t* places = (const int64_t*)a[0];
  const vg_part* parts = (const vg_part*)a[2];
  int64_t *out = (int64_t*)a[4], *out_edges = (int64_t*)a[5];
  for (int64_t i = first, at = 0, ahead = 0; i < last; ++i) {
    const int64_t next = places[i + vg_ahead < last ? i + vg_ahead : last - 1];
    ahead = vg_find_part(parts, a[3], ahead, next, &vg_part::first_place);
    const vg_part* far = parts + ahead;
    __builtin_prefetch(far->other + (next - far->first_place) * far->other_width);
    if (far->edge_ids) __builtin_prefetch(far->edge_ids + (next - far->first_place) * far->edge_width);
    at = vg_find_part(parts, a[3], at, places[i], &vg_part::first_place);
    const int64_t local = places[i] - parts[at].first_place;
    out[i] = vg_read(parts[at].other, parts[at].other_width, local);
    out_edges[i] = parts[at].edge_ids ? vg_read(parts[at].edge_ids, parts[at].edge_width, local) : places[i];
  }
  return 0;
}

// What stands at some places of adjacency lists.
// a: places, number of them, parts, number of them, out other ends, out edge ids, pool.
static int64_t vg_fetch(int64_t* a) { return vg_run(0, a[1], nullptr, 16, vg_fetch_some, a, (void*)a[6]); }

// Rows of consecutive numbers, each range of them in memory of its own.
struct vg_rows_part {
  int64_t first_row;
  const char* rows;
};

static int64_t vg_rows_some(int64_t first, int64_t last, int64_t, void* context) {
  const int64_t* a = (const int64_t*)context;
  const int64_t *ids = (const int64_t*)a[0], width = a[4];
  const vg_rows_part* parts = (const vg_rows_part*)a[2];
  char* out = (char*)a[5];
  for (int64_t i = first, at = 0; i < last; ++i) {
    at = vg_find_part(parts, a[3], at, ids[i], &vg_rows_part::first_row);
    __builtin_memcpy(out + i * width, parts[at].rows + (ids[i] - parts[at].first_row) * width, width);
  }
  return 0;
}

// Some rows of several arrays. a: numbers of rows, how many, parts (and one more, where all ends), number of them,
// bytes of a row, out rows, pool.
static int64_t vg_rows(int64_t* a) { return vg_run(0, a[1], nullptr, 16 + a[4] / 4, vg_rows_some, a, (void*)a[6]); }

// Numbers of ids as they are first seen: in a table of all ids where those are not many more than are given, else in one
// of a size with what is given, by hashes of ``bits`` bits.
struct vg_numbers {
  int32_t* table;  // -1: not seen
  int bits;        // 0: of all ids
  int64_t found;
  int64_t* unique;
};

// Without branches: whether an id is new cannot be foreseen.
static void vg_number_whole(vg_numbers* w, const int64_t* ids, int64_t count, int64_t* local) {
  int32_t* table = w->table;
  int64_t *unique = w->unique, found = w->found;
  for (int64_t i = 0; i < count; ++i) {
    __builtin_prefetch(table + ids[i + vg_ahead < count ? i + vg_ahead : i], 1);
    const int64_t id = ids[i], seen = table[id], is_new = seen < 0;
    const int64_t number = is_new ? found : seen;
    unique[found] = id, table[id] = (int32_t)number, local[i] = number;
    found += is_new;
  }
  w->found = found;
}

static void vg_number_hashed(vg_numbers* w, const int64_t* ids, int64_t count, int64_t* local) {
  const uint64_t mask = (1ull << w->bits) - 1;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t next = (uint64_t)ids[i + vg_ahead < count ? i + vg_ahead : i];
    __builtin_prefetch(w->table + ((next * 0x9e3779b97f4a7c15ull) >> (64 - w->bits)), 1);
    uint64_t at = ((uint64_t)ids[i] * 0x9e3779b97f4a7c15ull) >> (64 - w->bits);
    while (w->table[at] >= 0 && w->unique[w->table[at]] != ids[i]) at = (at + 1) & mask;
    if (w->table[at] < 0) w->table[at] = (int32_t)w->found, w->unique[w->found++] = ids[i];
    local[i] = w->table[at];
  }
}

// a: (ids, number of them) of several arrays, number of these, out unique ids, out local ids, out count, ids are below
// this, number of ids in all.
static int64_t vg_renumber(int64_t* a) {
  const int64_t *arrays = (const int64_t*)a[0], limit = a[5], count = a[6];
  int64_t* local = (int64_t*)a[3];
  int bits = 4;
  while ((1ll << bits) < 2 * count) ++bits;
  const bool is_whole = limit <= (4ll << bits);
  const int64_t bytes = (is_whole ? limit : 1ll << bits) * 4;
  int32_t* table = (int32_t*)malloc(bytes ? bytes : 1);
  if (table == nullptr) return 1;
  __builtin_memset(table, 0xff, bytes);
  vg_numbers numbers = {table, is_whole ? 0 : bits, 0, (int64_t*)a[2]};
  for (int64_t i = 0; i < a[1]; ++i) {
    (is_whole ? vg_number_whole : vg_number_hashed)(&numbers, (const int64_t*)arrays[2 * i], arrays[2 * i + 1], local);
    local += arrays[2 * i + 1];
  }
  free(table);
  a[4] = numbers.found;
  return 0;
}

struct vg_grouping {
  const char* group;  // of every edge
  int64_t group_width;
  const char* other;  // nullptr: the edges' ids are put in order
  int64_t other_width, edges, groups;
  int64_t* ptr;  // (groups + 1): where each begins
  int32_t* out;  // nullptr: edges are counted
  void* pool;
};

// Every thread goes over all edges, and takes those of its own groups in their order.
static int64_t vg_count_some(int64_t first, int64_t last, int64_t, void* context) {
  const vg_grouping* w = (const vg_grouping*)context;
  int64_t* counts = w->ptr + 1;
  for (int64_t i = 0; i < w->edges; ++i) {
    const int64_t group = vg_read(w->group, w->group_width, i);
    if (group >= first && group < last) ++counts[group];
  }
  return 0;
}

static int64_t vg_put_some(int64_t first, int64_t last, int64_t, void* context) {
  const vg_grouping* w = (const vg_grouping*)context;
  int64_t* next = (int64_t*)malloc((last - first) * 8);
  if (next == nullptr) return 1;
  __builtin_memcpy(next, w->ptr + first, (last - first) * 8);
  for (int64_t i = 0; i < w->edges; ++i) {
    const int64_t group = vg_read(w->group, w->group_width, i);
    const int64_t ahead = vg_read(w->group, w->group_width, i + vg_ahead < w->edges ? i + vg_ahead : i);
    if (ahead >= first && ahead < last) __builtin_prefetch(w->out + next[ahead - first], 1);
    if (group < first || group >= last) continue;
    w->out[next[group - first]++] = (int32_t)(w->other ? vg_read(w->other, w->other_width, i) : i);
  }
  free(next);
  return 0;
}

// Edges put in order by group, stably. a: as vg_grouping has it; ``ptr`` is filled where ``out`` is none.
static int64_t vg_group(int64_t* a) {
  vg_grouping* w = (vg_grouping*)a;
  const int64_t cost = w->groups ? w->edges / w->groups + 1 : 1, most = a[9];
  if (w->out) return vg_run(0, w->groups, nullptr, cost, vg_put_some, w, w->pool, most);
  if (vg_run(0, w->groups, nullptr, cost, vg_count_some, w, w->pool, most)) return 1;
  for (int64_t i = 0; i < w->groups; ++i) w->ptr[i + 1] += w->ptr[i];
  return 0;
}

// a: key, starts, number of them, length, table of (ptr, other, edge_ids or 0, width of ids) a step,
// probability to stop before a step in 2^32nds, out vertices (number x (length + 1)), out edges (number x length).
static int64_t vg_walk(int64_t* a) {
  const uint64_t key = (uint64_t)a[0];
  const int64_t *starts = (const int64_t*)a[1], length = a[3], *steps = (const int64_t*)a[4];
  int64_t *vertices = (int64_t*)a[6], *edges = (int64_t*)a[7];
  const uint64_t stops = (uint64_t)a[5];
  for (int64_t i = 0; i < a[2]; ++i) {
    int64_t v = vertices[i * (length + 1)] = starts[i];
    for (int64_t j = 0; j < length; ++j) {
      const int64_t* step = steps + 4 * j;
      const int64_t* ptr = (const int64_t*)step[0];
      int64_t edge = -1;
      const int64_t degree = v < 0 ? 0 : ptr[v + 1] - ptr[v];
      const bool is_over = degree == 0 || (vg_draw(key, i, 2 * j) >> 32) < stops;
      if (!is_over) {
        const int64_t at = ptr[v] + vg_below(vg_draw(key, i, 2 * j + 1), degree);
        v = step[3] == 4 ? ((const int32_t*)step[1])[at] : ((const int64_t*)step[1])[at];
        edge = step[2] ? ((const int64_t*)step[2])[at] : at;
      } else {
        v = -1;
      }
      vertices[i * (length + 1) + j + 1] = v;
      edges[i * length + j] = edge;
    }
  }
  return 0;
}

// Above 0 and at most 1.
static inline double vg_uniform(uint64_t drawn) { return (double)((drawn >> 11) + 1) * 0x1p-53; }

// The entry from ``begin`` up to ``stop`` in which a drawn part of these entries' sums falls; one of weight 0 stands
// for its neighbour before, else behind, that has weight, of which there must be one.
static int64_t vg_among(const double* sums, const double* own, int64_t begin, int64_t stop, uint64_t drawn) {
  const double aim = sums[begin] + vg_uniform(drawn) * (sums[stop] - sums[begin]);
  int64_t low = begin, high = stop + 1;  // the first of the sums that is not below the aim
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (sums[middle] < aim) low = middle + 1; else high = middle;
  }
  int64_t at = low - 1 < begin ? begin : low > stop ? stop - 1 : low - 1;
  const int64_t found = at;
  while (at >= begin && !(own[at] > 0)) --at;
  if (at >= begin) return at;
  for (at = found; at < stop && !(own[at] > 0);) ++at;
  return at;
}

static inline bool vg_holds(const char* other, int64_t width, int64_t first, int64_t last, int64_t wanted) {
  for (int64_t at = first; at < last; ++at) {
    if (vg_read(other, width, at) == wanted) return true;
  }
  return false;
}

struct vg_remembering {
  int64_t key;
  const int64_t* starts;
  int64_t count, length;
  const int64_t* out_ptr;
  const char* out_other;
  const int64_t* out_edges;  // nullptr: places are the ids
  const int64_t* in_ptr;
  const char* in_other;
  int64_t width;
  const double* chances;  // back, to a neighbour of the last vertex, elsewhere; then the largest of them
  const double *sums, *own;  // nullptr: all edges weigh alike
  int64_t *vertices, *edges;
  void* pool;
  int64_t trials;  // so many steps are proposed and not kept at most
};

// Whether an edge leads from one vertex to another: in the shorter of the two lists that would have it.
static inline bool vg_joins(const vg_remembering* w, int64_t from, int64_t to) {
  const int64_t first = w->out_ptr[from], last = w->out_ptr[from + 1], begin = w->in_ptr[to], stop = w->in_ptr[to + 1];
  if (last - first <= stop - begin) return vg_holds(w->out_other, w->width, first, last, to);
  return vg_holds(w->in_other, w->width, begin, stop, from);
}

// Whether a number is not above the chance of a step; edges are looked for where that decides.
static inline bool vg_is_kept(const vg_remembering* w, int64_t before, int64_t next, double number) {
  const double back = w->chances[0], near = w->chances[1], far = w->chances[2];
  if (next == before) return number <= back;
  if (number <= near && number <= far) return true;
  if (number > near && number > far) return false;
  return vg_joins(w, before, next) ? number <= near : number <= far;
}

// What a step along an entry weighs, of 1 at most times its own weight.
static inline double vg_step_weight(const vg_remembering* w, int64_t before, int64_t at) {
  const int64_t next = vg_read(w->out_other, w->width, at);
  const double chance = next == before ? w->chances[0] : vg_joins(w, before, next) ? w->chances[1] : w->chances[2];
  return (w->own ? w->own[at] : 1.0) * (chance / w->chances[3]);
}

// The entry in which a part of all entries' weights falls; -1 where none has weight.
static int64_t vg_among_steps(const vg_remembering* w, int64_t before, int64_t begin, int64_t stop, double part) {
  double total = 0, sum = 0;
  int64_t found = -1;
  for (int64_t at = begin; at < stop; ++at) total += vg_step_weight(w, before, at);
  for (int64_t at = begin; at < stop && (found < 0 || sum < part * total); ++at) {
    const double weight = vg_step_weight(w, before, at);
    if (weight > 0) found = at, sum += weight;
  }
  return found;
}

static int64_t vg_remember_some(int64_t first, int64_t last, int64_t, void* context) {
  const vg_remembering* w = (const vg_remembering*)context;
  for (int64_t i = first; i < last; ++i) {
    int64_t v = w->vertices[i * (w->length + 1)] = w->starts[i], before = -1;
    for (int64_t j = 0; j < w->length; ++j) {
      const int64_t begin = v < 0 ? 0 : w->out_ptr[v], stop = v < 0 ? 0 : w->out_ptr[v + 1];
      int64_t next = -1, edge = -1;
      if (begin < stop && (w->sums == nullptr || w->sums[stop] > w->sums[begin])) {
        for (int64_t trial = 0;; ++trial) {  // proposed as a plain walk would, kept in proportion to its chance
          const uint64_t slot = 2 * (uint64_t)(trial * w->length + j), drawn = vg_draw(w->key, i, slot);
          if (trial == w->trials) {  // hardly any is kept: all are looked at
            const int64_t at = vg_among_steps(w, before, begin, stop, vg_uniform(drawn));
            next = at < 0 ? -1 : vg_read(w->out_other, w->width, at);
            edge = at < 0 ? -1 : w->out_edges ? w->out_edges[at] : at;
            break;
          }
          const int64_t at = w->sums ? vg_among(w->sums, w->own, begin, stop, drawn) : begin + vg_below(drawn, stop - begin);
          next = vg_read(w->out_other, w->width, at);
          edge = w->out_edges ? w->out_edges[at] : at;
          if (before < 0) break;
          if (vg_is_kept(w, before, next, vg_uniform(vg_draw(w->key, i, slot + 1)) * w->chances[3])) break;
        }
      }
      w->vertices[i * (w->length + 1) + j + 1] = next;
      w->edges[i * w->length + j] = edge;
      before = v, v = next;
    }
  }
  return 0;
}

// Walks that remember one step (node2vec). a: a vg_remembering.
static int64_t vg_remember(int64_t* a) {
  const vg_remembering* w = (const vg_remembering*)a;
  return vg_run(0, w->count, nullptr, 64 * w->length, vg_remember_some, (void*)w, w->pool);
}
