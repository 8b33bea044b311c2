// Streaming partitioning: every vertex goes to the part that has most of its neighbours and room left.
//
// LDG: Stanton and Kliot 2012; Fennel: Tsourakakis et al. 2014; several passes: Nishimura and Ugander 2013.
// vgraph/distributed/partition/streaming.py computes the same in Python: the order of arithmetic is kept there.
#pragma once
#include <stdint.h>
#include "threads.h"

// Adjacency lists of some vertices; vertices of all types are numbered one after the other.
struct vg_lists {
  const int64_t* ptr;
  const char* other;
  int64_t bytes;  // of an other end
  int64_t first, count;  // vertices that have lists
  int64_t first_other;  // what is added to other ends
  int64_t is_weight;  // whether a list's length is what the second constraint counts
};

struct vg_classes {
  const uint8_t* of_vertices;
  int64_t constraint;  // the first one; 255: of none
};

struct vg_stream {
  int32_t* parts;
  int64_t num_parts, num_constraints;
  int64_t* loads;  // (parts, constraints)
  const double* room;  // (constraints): what one part may hold
  const vg_lists* lists;
  int64_t num_lists;
  const vg_classes* classes;
  int64_t num_classes;
  int64_t has_edges, is_fennel;
  double alpha;  // Fennel: what a vertex costs in a full part
  int64_t num_vertices, block, stride;  // blocks of neighbours come in an order that mixes all of them
};

// The weight of a vertex: one, its in-edges, and one for each class that it is of.
static inline void vg_weigh(const vg_stream* s, int64_t v, int64_t* weight) {
  for (int64_t c = 0; c < s->num_constraints; ++c) weight[c] = c == 0;
  for (int64_t r = 0; s->has_edges && r < s->num_lists; ++r) {
    const vg_lists* l = s->lists + r;
    if (!l->is_weight || v < l->first || v >= l->first + l->count) continue;
    weight[1] += l->ptr[v - l->first + 1] - l->ptr[v - l->first];
  }
  for (int64_t k = 0; k < s->num_classes; ++k) {
    const uint8_t found = s->classes[k].of_vertices[v];
    if (found != 255) weight[s->classes[k].constraint + found] = 1;
  }
}

// How full a part is: the largest share of its room that is taken.
static inline double vg_fill(const vg_stream* s, int64_t part) {
  double most = 0;
  for (int64_t c = 0; c < s->num_constraints; ++c) {
    const double fill = (double)s->loads[part * s->num_constraints + c] / s->room[c];
    most = fill > most ? fill : most;
  }
  return most;
}

static inline bool vg_has_room(const vg_stream* s, int64_t part, const int64_t* weight) {
  for (int64_t c = 0; c < s->num_constraints; ++c) {
    if (weight[c] && (double)(s->loads[part * s->num_constraints + c] + weight[c]) > s->room[c]) return false;
  }
  return true;
}

// A tournament of parts: the emptiest is at the root. ``tree`` has 2 * width entries; equal ones: the lower number.
static inline void vg_play(const double* fill, int32_t* tree, int64_t at) {
  const int32_t a = tree[2 * at], b = tree[2 * at + 1];
  tree[at] = b < 0 || (a >= 0 && fill[a] <= fill[b]) ? a : b;
}

static inline void vg_load(
    const vg_stream* s, int64_t part, const int64_t* weight, int64_t sign, double* fill, int32_t* tree, int64_t width) {
  for (int64_t c = 0; c < s->num_constraints; ++c) s->loads[part * s->num_constraints + c] += sign * weight[c];
  fill[part] = vg_fill(s, part);
  for (int64_t at = (width + part) >> 1; at; at >>= 1) vg_play(fill, tree, at);
}

static inline double vg_score(const vg_stream* s, int64_t count, double fill) {
  return s->is_fennel ? (double)count - s->alpha * __builtin_sqrt(fill) : (double)count * (1.0 - fill);
}

// The part with room that scores most, neighbours' parts compared with the emptiest; the emptiest, if none has room.
static inline int32_t vg_best(
    const vg_stream* s, const int64_t* weight, const int64_t* count, const int32_t* touched, int64_t num_touched,
    const double* fill, int32_t emptiest) {
  int32_t best = emptiest;
  double most = vg_score(s, count[best], fill[best]);
  bool is_possible = vg_has_room(s, best, weight);
  for (int64_t i = 0; i < num_touched; ++i) {
    const int32_t part = touched[i];
    if (part == emptiest || !vg_has_room(s, part, weight)) continue;
    const double score = vg_score(s, count[part], fill[part]);
    if (!is_possible || score > most) best = part, most = score, is_possible = true;
  }
  return best;
}

// The i-th vertex of a pass: neighbours in the order of ids often belong together, and would fill one part after
// the other. -1: the last block is not full.
static inline int64_t vg_turn(const vg_stream* s, int64_t i) {
  const int64_t num_blocks = (s->num_vertices + s->block - 1) / s->block;
  const int64_t v = i / s->block * s->stride % num_blocks * s->block + i % s->block;
  return v < s->num_vertices ? v : -1;
}

// a: the stream, first turn, last. Gives 1 where there was no memory.
static int64_t vg_stream_vertices(int64_t* a) {
  const vg_stream* s = (const vg_stream*)a[0];
  int64_t width = 1;
  while (width < s->num_parts) width *= 2;
  const int64_t bytes = width * (8 + 8 + 8 + 4) + s->num_constraints * 8;
  char* room = (char*)malloc(bytes);
  if (room == nullptr) return 1;
  double* fill = (double*)room;
  int64_t *count = (int64_t*)(fill + width), *weight = count + width;
  int32_t *tree = (int32_t*)(weight + s->num_constraints), *touched = tree + 2 * width;
  for (int64_t p = 0; p < width; ++p) count[p] = 0, tree[width + p] = p < s->num_parts ? (int32_t)p : -1;
  for (int64_t p = 0; p < s->num_parts; ++p) fill[p] = vg_fill(s, p);
  for (int64_t at = width - 1; at; --at) vg_play(fill, tree, at);
  for (int64_t i = a[1]; i < a[2]; ++i) {
    const int64_t v = vg_turn(s, i);
    if (v < 0) continue;
    vg_weigh(s, v, weight);
    if (s->parts[v] >= 0) vg_load(s, s->parts[v], weight, -1, fill, tree, width);
    int64_t num_touched = 0;
    for (int64_t r = 0; r < s->num_lists; ++r) {
      const vg_lists* l = s->lists + r;
      if (v < l->first || v >= l->first + l->count) continue;
      for (int64_t e = l->ptr[v - l->first]; e < l->ptr[v - l->first + 1]; ++e) {
        const int64_t other = (l->bytes == 4 ? ((const int32_t*)l->other)[e] : ((const int64_t*)l->other)[e]) + l->first_other;
        const int32_t part = s->parts[other];
        if (part < 0 || other == v) continue;
        if (!count[part]++) touched[num_touched++] = part;
      }
    }
    const int32_t best = vg_best(s, weight, count, touched, num_touched, fill, tree[1]);
    s->parts[v] = best;
    vg_load(s, best, weight, 1, fill, tree, width);
    for (int64_t k = 0; k < num_touched; ++k) count[touched[k]] = 0;
  }
  free(room);
  return 0;
}
