// Levels: the longest path to every vertex. Row order: vertices by key, edges by the row of their head, and the same
// edges by the row of their tail; each a stable sort by counting, so that the whole is a few passes over the ids.
// Frontiers: where the rows of every key begin, and the in-degree that they share.
// Read after prelude.h, as all here.

// a: vertices, edges (fewer than 2^31 of both), tails, heads, then the places of: levels (int32), and room for
// 3 vertices + edges + 1 numbers (int32). Gives in a[0] of how many vertices the level is known: not of those on a
// cycle, or behind one.
extern "C" void vg_levels(int64_t* a) {
  const int64_t n = a[0], m = a[1];
  const int64_t *tails = (const int64_t*)a[2], *heads = (const int64_t*)a[3];
  int32_t *level = (int32_t*)a[4], *starts = (int32_t*)a[5];
  int32_t *waiting = starts + n + 1, *ready = waiting + n, *above = ready + n;
  for (int64_t v = 0; v <= n; ++v) starts[v] = 0;
  for (int64_t v = 0; v < n; ++v) waiting[v] = level[v] = 0;
  for (int64_t e = 0; e < m; ++e) ++starts[tails[e]], ++waiting[heads[e]];
  for (int64_t v = 0; v < n; ++v) starts[v + 1] += starts[v];  // where each ends: filled from behind
  for (int64_t e = 0; e < m; ++e) above[--starts[tails[e]]] = (int32_t)heads[e];
  int64_t known = 0, count = 0;  // of ready vertices: the last one goes first, so that graphs of a batch are walked one by one
  for (int64_t v = 0; v < n; ++v)
    if (waiting[v] == 0) {
      ready[count++] = (int32_t)v;
      while (count > 0) {
        const int32_t u = ready[--count];
        waiting[u] = -1;
        ++known;
        for (int32_t e = starts[u]; e < starts[u + 1]; ++e) {
          const int32_t w = above[e];
          if (level[w] <= level[u]) level[w] = level[u] + 1;
          if (--waiting[w] == 0) ready[count++] = w;
        }
      }
    }
  a[0] = known;
}

// starts[g + 1] of how many of ``ids`` fall into each group becomes where each group begins; starts[groups] their number.
static void vg_sum_counts(int64_t* starts, int64_t groups) {
  for (int64_t g = 0; g < groups; ++g) starts[g + 1] += starts[g];
}

// What orders edges: ends, the row of every vertex (nullptr: its id), and what is filled: where in-edges and out-edges
// begin, edge ids, rows of tails and of heads by edge row, edge rows by tail and their heads. ``next``: room for as many
// numbers as there are sources, or vertices.
struct vg_edges {
  int64_t sources, n, m;
  const int64_t *tails, *heads, *rows;
  int64_t *in_ptr, *out_ptr;
  int32_t *edge_ids, *src, *dst, *out_edges, *out_dst;
  int64_t* next;
  int64_t row_of(int64_t v) const { return rows ? rows[v] : v; }
  int64_t head_of(int64_t e) const { return row_of(heads[e]); }
  void put_in(int64_t row, int64_t e, int64_t head) const {
    edge_ids[row] = (int32_t)e, src[row] = (int32_t)row_of(tails[e]), dst[row] = (int32_t)head;
  }
  void put_out(int64_t place, int64_t e) const { out_edges[place] = (int32_t)e, out_dst[place] = dst[e]; }
};

static bool vg_group_in_turn(const vg_edges& g) {
  bool is_grouped = true;
  for (int64_t v = 0; v <= g.n; ++v) g.in_ptr[v] = 0;
  for (int64_t v = 0; v <= g.sources; ++v) g.out_ptr[v] = 0;
  for (int64_t e = 0; e < g.m; ++e) {
    const int64_t head = g.head_of(e);
    is_grouped &= e == 0 || head >= g.head_of(e - 1);
    ++g.in_ptr[head + 1];
    ++g.out_ptr[g.row_of(g.tails[e]) + 1];
  }
  vg_sum_counts(g.in_ptr, g.n);
  vg_sum_counts(g.out_ptr, g.sources);
  for (int64_t v = 0; v < g.n; ++v) g.next[v] = g.in_ptr[v];
  for (int64_t e = 0; e < g.m; ++e) {
    const int64_t head = g.head_of(e);
    g.put_in(g.next[head]++, e, head);
  }
  for (int64_t v = 0; v < g.sources; ++v) g.next[v] = g.out_ptr[v];
  for (int64_t e = 0; e < g.m; ++e) g.put_out(g.next[g.src[e]]++, e);
  return is_grouped;
}

// The same by all threads: edges, cut into blocks, go to ranges of keys, each block to a place of its own, so that they
// keep their order; then each range is sorted by counting. Radix sort of Knuth's volume 3, 5.2.5, from the first digit.
constexpr int64_t vg_edge_blocks = 64, vg_key_ranges = 256;
constexpr int64_t vg_many_edges = 1 << 18;  // from which threads gain more than the passes that this adds cost

struct vg_sorting {
  const vg_edges* g;
  bool by_tail;
  int64_t keys, shift;
  int64_t* ptr;  // where the edges of every key begin
  int32_t *ids, *key_of;  // of edges by range
  int64_t starts[vg_key_ranges + 1][vg_edge_blocks];  // of what a block gives to a range; then where that ends
  int64_t disordered;  // whether some edge's key is less than the one before
  int64_t first(int64_t block) const { return g->m * block / vg_edge_blocks; }
  int64_t key(int64_t e) const { return by_tail ? g->src[e] : g->head_of(e); }
};
static int64_t vg_count_blocks(int64_t begin, int64_t end, int64_t, void* context) {
  vg_sorting& s = *(vg_sorting*)context;
  for (int64_t block = begin; block < end; ++block) {
    int64_t counts[vg_key_ranges] = {0}, before = block ? s.key(s.first(block) - 1) : 0, falls = 0;
    for (int64_t e = s.first(block); e < s.first(block + 1); ++e) {
      const int64_t key = s.key(e);
      falls |= key < before, before = key;
      ++counts[key >> s.shift];
    }
    for (int64_t r = 0; r < vg_key_ranges; ++r) s.starts[r][block] = counts[r];
    if (falls) vg_fail(&s.disordered);
  }
  return 0;
}
static int64_t vg_deal_blocks(int64_t begin, int64_t end, int64_t, void* context) {
  vg_sorting& s = *(vg_sorting*)context;
  for (int64_t block = begin; block < end; ++block) {
    int64_t at[vg_key_ranges];
    for (int64_t r = 0; r < vg_key_ranges; ++r) at[r] = s.starts[r][block];
    for (int64_t e = s.first(block); e < s.first(block + 1); ++e) {
      const int64_t key = s.key(e), place = at[key >> s.shift]++;
      s.ids[place] = (int32_t)e, s.key_of[place] = (int32_t)key;
    }
  }
  return 0;
}
static int64_t vg_sort_ranges(int64_t begin, int64_t end, int64_t, void* context) {
  vg_sorting& s = *(vg_sorting*)context;
  int64_t* next = s.g->next;
  for (int64_t r = begin; r < end; ++r) {
    const int64_t low = r << s.shift, high = (r + 1) << s.shift < s.keys ? (r + 1) << s.shift : s.keys;
    const int64_t from = s.starts[r][0], to = s.starts[r + 1][0];
    for (int64_t key = low; key < high; ++key) next[key] = 0;
    for (int64_t i = from; i < to; ++i) ++next[s.key_of[i]];
    for (int64_t key = low, at = from; key < high; ++key) {
      const int64_t count = next[key];
      s.ptr[key] = next[key] = at;
      at += count;
    }
    for (int64_t i = from; i < to; ++i) {
      const int64_t key = s.key_of[i], place = next[key]++;
      if (s.by_tail) s.g->put_out(place, s.ids[i]); else s.g->put_in(place, s.ids[i], key);
    }
  }
  return 0;
}
// Gives whether keys were in order.
static bool vg_sort_by_key(vg_sorting& s, void* pool) {
  const int64_t m = s.g->m, each = m / vg_edge_blocks;
  for (s.shift = 0; (s.keys - 1) >> s.shift >= vg_key_ranges;) ++s.shift;
  s.disordered = 0;
  vg_run(0, vg_edge_blocks, nullptr, each, vg_count_blocks, &s, pool);
  int64_t at = 0;
  for (int64_t r = 0; r < vg_key_ranges; ++r)
    for (int64_t block = 0; block < vg_edge_blocks; ++block) {
      const int64_t count = s.starts[r][block];
      s.starts[r][block] = at;
      at += count;
    }
  s.starts[vg_key_ranges][0] = s.ptr[s.keys] = m;
  vg_run(0, vg_edge_blocks, nullptr, each, vg_deal_blocks, &s, pool);
  const int64_t ranges = ((s.keys - 1) >> s.shift) + 1;
  vg_run(0, ranges, nullptr, m / ranges, vg_sort_ranges, &s, pool);
  return !s.disordered;
}

// Gives whether edges were in order already.
static bool vg_group_edges(const vg_edges& g, void* pool) {
  const int64_t bytes = 2 * g.m * (int64_t)sizeof(int32_t);
  char* room = pool && g.m >= vg_many_edges ? (char*)malloc(bytes + sizeof(vg_sorting)) : nullptr;
  if (room == nullptr) return vg_group_in_turn(g);
  vg_sorting& s = *(vg_sorting*)room;
  s.g = &g, s.ids = (int32_t*)(room + sizeof(vg_sorting)), s.key_of = s.ids + g.m;
  s.by_tail = false, s.keys = g.n, s.ptr = g.in_ptr;
  const bool is_grouped = vg_sort_by_key(s, pool);
  s.by_tail = true, s.keys = g.sources, s.ptr = g.out_ptr;
  vg_sort_by_key(s, pool);
  free(room);
  return is_grouped;
}

// The number of in-edges that all rows [begin, end) have; -1 where they differ or there is no row.
static int64_t vg_common_degree(const int64_t* in_ptr, int64_t begin, int64_t end) {
  if (begin >= end || (in_ptr[end] - in_ptr[begin]) % (end - begin) != 0) return -1;
  const int64_t degree = (in_ptr[end] - in_ptr[begin]) / (end - begin);
  for (int64_t v = begin; v < end; ++v)
    if (in_ptr[v + 1] - in_ptr[v] != degree) return -1;
  return degree;
}

struct vg_ends { const int64_t* ids; int64_t count; };
static int64_t vg_check_ends(int64_t begin, int64_t end, int64_t, void* context) {
  vg_ends& ends = *(vg_ends*)context;
  bool are_there = true;
  for (int64_t e = begin; e < end; ++e) are_there &= (uint64_t)ends.ids[e] < (uint64_t)ends.count;
  return !are_there;
}

// Edges alone, of vertices that keep their order. a: sources, destinations, edges, tails, heads; then the places of:
// where in-edges and out-edges begin (int64), edge ids, rows of tails and of heads by edge row, edge rows by tail and
// their heads (int32), room for as many numbers as there are sources, or destinations; the pool; how many zeros belong
// behind each of the lists of int32. Gives in a[0] whether
// edges were in order already, in a[1] the in-degree of all, -1 where it differs; in a[2] whether all ids are there:
// else nothing.
extern "C" void vg_sort_edges(int64_t* a) {
  const vg_edges g = {a[0], a[1], a[2], (const int64_t*)a[3], (const int64_t*)a[4], nullptr, (int64_t*)a[5], (int64_t*)a[6],
                      (int32_t*)a[7], (int32_t*)a[8], (int32_t*)a[9], (int32_t*)a[10], (int32_t*)a[11], (int64_t*)a[12]};
  void* pool = (void*)a[13];
  vg_ends tails = {g.tails, g.sources}, heads = {g.heads, g.n};
  a[2] = !vg_run(0, g.m, nullptr, 1, vg_check_ends, &tails, pool) && !vg_run(0, g.m, nullptr, 1, vg_check_ends, &heads, pool);
  if (!a[2]) return;
  int32_t* const lists[] = {g.edge_ids, g.src, g.dst, g.out_edges, g.out_dst};
  for (int32_t* list : lists)
    for (int64_t i = 0; i < a[14]; ++i) list[g.m + i] = 0;
  a[0] = vg_group_edges(g, pool);
  a[1] = vg_common_degree(g.in_ptr, 0, g.n);
}

// a: vertices, edges, keys (int32, below the count), count, tails, heads; then the places of: vertex ids and
// rows, where in-edges and out-edges begin (int64), edge ids, rows of tails and of heads by edge row, edge rows by
// tail and their heads (int32), room for count + 1 and for vertices + 1 numbers; the pool. Gives in a[0] and a[1]
// whether vertices and edges were in order already.
extern "C" void vg_sort_rows(int64_t* a) {
  const int64_t n = a[0], m = a[1], count = a[3];
  const int32_t* keys = (const int32_t*)a[2];
  int64_t *ids = (int64_t*)a[6], *rows = (int64_t*)a[7], *starts = (int64_t*)a[15];
  bool is_sorted = true;
  for (int64_t k = 0; k <= count; ++k) starts[k] = 0;
  for (int64_t v = 0; v < n; ++v) {
    ++starts[keys[v] + 1];
    is_sorted &= v == 0 || keys[v] >= keys[v - 1];
  }
  vg_sum_counts(starts, count);
  for (int64_t v = 0; v < n; ++v) {
    const int64_t row = starts[keys[v]]++;
    ids[row] = v;
    rows[v] = row;
  }
  a[0] = is_sorted;
  const vg_edges g = {n, n, m, (const int64_t*)a[4], (const int64_t*)a[5], rows, (int64_t*)a[8], (int64_t*)a[9],
                      (int32_t*)a[10], (int32_t*)a[11], (int32_t*)a[12], (int32_t*)a[13], (int32_t*)a[14], (int64_t*)a[16]};
  a[1] = vg_group_edges(g, (void*)a[17]);
}

// a: vertices, keys (int32, below the count), count, where in-edges begin by row, and places of count + 1 numbers for
// where each key's rows begin, of as many for their in-edges, and of count for their in-degree, -1 where it differs.
extern "C" void vg_bounds(const int64_t* a) {
  const int64_t n = a[0], count = a[2];
  const int32_t* keys = (const int32_t*)a[1];
  const int64_t* in_ptr = (const int64_t*)a[3];
  int64_t *first = (int64_t*)a[4], *edges = (int64_t*)a[5], *degrees = (int64_t*)a[6];
  for (int64_t k = 0; k <= count; ++k) first[k] = 0;
  for (int64_t v = 0; v < n; ++v) ++first[keys[v] + 1];
  vg_sum_counts(first, count);
  for (int64_t k = 0; k <= count; ++k) edges[k] = in_ptr[first[k]];
  for (int64_t k = 0; k < count; ++k) degrees[k] = vg_common_degree(in_ptr, first[k], first[k + 1]);
}

// Levels, and with them the order of rows by level and where frontiers lie. a: vertices, edges, tails, heads, then the
// places of: levels; what vg_sort_rows fills, from vertex ids to heads by tail; what vg_bounds fills; and room for
// 3 vertices + edges + 1 numbers (int32) and for 2 vertices + 3 (int64); the pool. Gives in a[0] what vg_levels does, in
// a[1] how many levels there are, in a[2] and a[3] what vg_sort_rows does; in a[4] whether rows were left unsorted,
// since no vertex has two in-edges and those of a level have another order.
extern "C" void vg_plan_rows(int64_t* a) {
  const int64_t n = a[0], m = a[1];
  const int32_t* level = (const int32_t*)a[4];
  int64_t levels[6] = {n, m, a[2], a[3], a[4], a[17]};
  vg_levels(levels);
  a[0] = levels[0];
  if (levels[0] != n) return;
  int64_t count = 0, inner = 0;
  for (int64_t v = 0; v < n; ++v) {
    inner += level[v] > 0;
    count = level[v] >= count ? level[v] + 1 : count;
  }
  a[1] = count;
  a[4] = m > 0 && m == inner;
  if (a[4]) return;
  int64_t* room = (int64_t*)a[18];
  int64_t sorts[18] = {n, m, (int64_t)level, count, a[2], a[3], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13],
                       (int64_t)room, (int64_t)(room + n + 2), a[19]};
  const int64_t bounds[7] = {n, (int64_t)level, count, a[7], a[14], a[15], a[16]};
  vg_sort_rows(sorts);
  vg_bounds(bounds);
  a[2] = sorts[0];
  a[3] = sorts[1];
}

template <class Value>
static void vg_group_elements(const int64_t* a, int64_t begin, int64_t end, Value value_of) {
  const int32_t* keys = (const int32_t*)a[2];
  int64_t* next = (int64_t*)a[7];
  int32_t* made = (int32_t*)a[8];
  for (int64_t e = begin; e < end; ++e) made[next[keys[e]]++] = value_of(e);
}
// A number of each element, by groups, where elements keep their order. a: elements (fewer than 2^31), groups; then the
// places of each element's group and number (int32), runs of elements, where those begin and the last ends, where
// groups begin (int64), room for as many numbers as groups, and of what is made (int32). Without numbers, they are
// those of the runs in which elements lie; without runs, those of the elements.
extern "C" void vg_group_numbers(const int64_t* a) {
  const int32_t* numbers = (const int32_t*)a[3];
  const int64_t *runs = (const int64_t*)a[5], *starts = (const int64_t*)a[6];
  for (int64_t g = 0; g < a[1]; ++g) ((int64_t*)a[7])[g] = starts[g];
  if (numbers) {
    vg_group_elements(a, 0, a[0], [numbers](int64_t e) { return numbers[e]; });
  } else if (!runs) {
    vg_group_elements(a, 0, a[0], [](int64_t e) { return (int32_t)e; });
  } else {
    for (int64_t v = 0; v < a[4]; ++v) vg_group_elements(a, runs[v], runs[v + 1], [v](int64_t) { return (int32_t)v; });
  }
}

template <class I> static void vg_take_ends(const int64_t* a) {
  const int64_t *numbers = (const int64_t*)a[1], *starts = (const int64_t*)a[2], *sizes = (const int64_t*)a[3];
  const int64_t *edge_starts = (const int64_t*)a[4], *counts = (const int64_t*)a[5];
  const I *tails = (const I*)a[6], *heads = tails + a[7];
  int64_t *rows = (int64_t*)a[9], *edges = (int64_t*)a[10], first = 0, at = 0;
  I *new_tails = (I*)a[11], *new_heads = (I*)a[12];
  for (int64_t i = 0; i < a[0]; ++i) {
    const int64_t g = numbers[i];
    for (int64_t e = edge_starts[g]; e < edge_starts[g] + counts[g]; ++e, ++at) {
      edges[at] = e;
      new_tails[at] = tails[e] + (I)first, new_heads[at] = heads[e] + (I)first;
    }
    for (int64_t v = 0; v < sizes[g]; ++v) rows[first + v] = starts[g] + v;
    first += sizes[g];
  }
}

// Some graphs of a whole, one after the other. a: how many, their numbers; of all graphs where rows begin, how many
// they are, where edges begin, how many they are (int64); tails, how far behind them heads are, bytes of an id; then
// the places of rows and edges of the whole (int64), and of tails and heads. Ends of edges count within their graph.
extern "C" void vg_take_members(const int64_t* a) { a[8] == 4 ? vg_take_ends<int32_t>(a) : vg_take_ends<int64_t>(a); }

struct vg_moved { const char* from; const int32_t* ids; int64_t bytes, last; char* to; };
// The place of a row is known long before it is there: it is asked for some rows ahead.
template <int B> static inline void vg_move_rows(int64_t begin, int64_t end, const vg_moved* m) {
  const int64_t bytes = B > 0 ? B : m->bytes;
  constexpr int64_t ahead = 16;
  for (int64_t i = begin; i < end; ++i) {
    const char* next = m->from + m->ids[i + ahead < m->last ? i + ahead : m->last] * bytes;
    for (int64_t line = 0; line < bytes; line += 64) vg_read_ahead(next + line);
    __builtin_memcpy(m->to + i * bytes, m->from + m->ids[i] * bytes, bytes);
  }
}
static int64_t vg_move_piece(int64_t begin, int64_t end, int64_t, void* context) {
  const vg_moved* m = (const vg_moved*)context;
  switch (m->bytes) {
    case 4: vg_move_rows<4>(begin, end, m); break;
    case 8: vg_move_rows<8>(begin, end, m); break;
    case 16: vg_move_rows<16>(begin, end, m); break;
    case 32: vg_move_rows<32>(begin, end, m); break;
    case 64: vg_move_rows<64>(begin, end, m); break;
    default: vg_move_rows<0>(begin, end, m);
  }
  return 0;
}
// Rows by ids. a: how many, bytes of a row, then the places of rows, ids (int32) and of what is made; the pool.
extern "C" int64_t vg_take_rows(int64_t* a) {
  vg_moved moved = {(const char*)a[2], (const int32_t*)a[3], a[1], a[0] - 1, (char*)a[4]};
  return vg_run(0, a[0], nullptr, a[1] / 4 + 8, vg_move_piece, &moved, (void*)a[5]);
}

// ---------------------------------------------------------------- whether numbers are what they were
// Each word of 8 bytes is mixed with its place by a function that maps no two words to one, and the results are added
// up: one other word changes the sum for certain, many do but for one chance in 2^64.
struct vg_summed { const char* from; int64_t bytes; uint64_t sum; };
static inline uint64_t vg_mixed(uint64_t word, uint64_t place) {
  word += (place + 1) * 0x9e3779b97f4a7c15ull;
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ull;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebull;
  return word ^ (word >> 31);
}
static int64_t vg_sum_piece(int64_t begin, int64_t end, int64_t, void* context) {
  vg_summed* s = (vg_summed*)context;
  uint64_t sum = 0;
  for (int64_t block = begin; block < end; ++block) {
    const int64_t first = block * 512, last = s->bytes / 8 < first + 512 ? s->bytes / 8 : first + 512;
    for (int64_t i = first; i < last; ++i) {
      uint64_t word;
      __builtin_memcpy(&word, s->from + i * 8, 8);
      sum += vg_mixed(word, i);
    }
  }
  __atomic_fetch_add(&s->sum, sum, __ATOMIC_RELAXED);
  return 0;
}
// A checksum of bytes. a: how many, where they are, the pool; then it is in a[0].
extern "C" void vg_checksum(int64_t* a) {
  vg_summed s = {(const char*)a[1], a[0], (uint64_t)a[0]};
  uint64_t rest = 0;
  if (a[0] % 8) __builtin_memcpy(&rest, s.from + a[0] / 8 * 8, a[0] % 8);  // of no bytes there is no place
  vg_run(0, (a[0] / 8 + 511) / 512, nullptr, 512, vg_sum_piece, &s, (void*)a[2]);
  a[0] = (int64_t)(s.sum + vg_mixed(rest, a[0] / 8));
}
