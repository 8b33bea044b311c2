// Multi-mode reduction on the CPU: any subset of a tensor's modes in one launch.
// A generated body gives the numbers (``at``: operands and what is pointwise around them), the combination, and
// what is pointwise after it (``after``).
//
// The innermost modes, kept and reduced alike, form a run that lies in the nearest cache: each step adds a run
// to sums that are kept for all its positions, and only the last few numbers of a slice are combined with one
// another (``vg_fold``). Steps and slices are virtual coordinates; which thread takes which changes no number.
// Included after prelude.h; ``vg_modes`` says what the entries of ``a`` are.
constexpr int vg_most_modes = 16;   // of each kind
constexpr int vg_run_bytes = 8192;  // of the sums of a run
constexpr int vg_quads = 32;        // groups of four steps whose sums are added before they join the total

template <class B> struct vg_modes {
  static constexpr int K = B::operands, W = B::lanes;
  typedef typename B::A A;
  static constexpr int most = vg_run_bytes / (int)sizeof(A);
  void* pool;
  typename B::Out* out;
  A* partial;
  int64_t chunks, kept_modes, reduced_modes, run_modes;
  int64_t block, whole, split;  // of the run's outermost mode: entries a step, in all, cut as kept 1 or reduced 2
  int64_t num_kept, num_steps, length, width;  // slices of runs, steps a slice, positions of a run, kept ones of them
  const int64_t *base, *pace;           // of each operand: address; bytes between positions of a run
  const int64_t *kept, *reduced, *run;  // rows (size, out stride, byte strides), (size, byte strides), (size, is
                                        // reduced, out stride); outermost first
  explicit vg_modes(const int64_t* a)
      : pool((void*)a[0]), out((typename B::Out*)a[1]), partial((A*)a[2]), chunks(a[3]), kept_modes(a[4]),
        reduced_modes(a[5]), run_modes(a[6]), block(a[7]), whole(a[8]), split(a[9]), num_kept(a[10]),
        num_steps(a[11]), length(a[12]), width(a[13]), base(a + 14), pace(base + K), kept(pace + K), reduced(kept + kept_modes * (K + 2)),
        run(reduced + reduced_modes * (K + 1)) {}
};

template <int W, class T> static inline vg_t<decltype(vg_load<1>((const T*)0)), W> vg_gather(const char* p, int64_t pace) {
  typedef decltype(vg_load<1>((const T*)0)) N;
  if constexpr (W == 1) return vg_load<1>((const T*)p);
  else { vg_t<N, W> v; for (int i = 0; i < W; ++i) v[i] = vg_load<1>((const T*)(p + i * pace)); return v; }
}

// A position in several modes: addresses ``at``, and for kept modes the place in the output.
template <int K, int X> struct vg_cursor {
  int64_t at[K], out = 0, index[vg_most_modes];
  inline void step(const int64_t* mode, int64_t count) {
    for (int k = 0; k < K; ++k) at[k] += mode[X + k] * count;
    if (X == 2) out += mode[1] * count;
  }
  inline void seek(const int64_t* from, const int64_t* modes, int64_t num, int64_t linear) {
    for (int k = 0; k < K; ++k) at[k] = from[k];
    out = 0;
    for (int64_t m = num - 1; m >= 0; --m) {
      const int64_t* mode = modes + m * (K + X);
      index[m] = linear % mode[0];
      linear /= mode[0];
      step(mode, index[m]);
    }
  }
  inline void next(const int64_t* modes, int64_t num) {
    for (int64_t m = num - 1; m >= 0; --m) {
      const int64_t* mode = modes + m * (K + X);
      step(mode, 1);
      if (++index[m] < mode[0]) return;
      step(mode, -mode[0]);
      index[m] = 0;
    }
  }
};

template <int W> struct vg_width { static constexpr int lanes = W; };
// f(width, position) for all of [i, end): whole vectors, then halves of one. A loop over single numbers at the end
// would be vectorized again by the compiler, for all numbers that it might be of: a third of the whole program.
template <int W, class F> static inline void vg_left(int64_t i, int64_t end, const F& f) {
  if (i + W <= end) { f(vg_width<W>(), i); i += W; }
  if constexpr (W > 1) vg_left<W / 2>(i, end, f);
}
template <int W, class F> static inline void vg_along(int64_t i, int64_t end, const F& f) {
  for (; i + W <= end; i += W) f(vg_width<W>(), i);
  if constexpr (W > 1) if (i < end) vg_left<W / 2>(i, end, f);
}

// ---------------------------------------------------------------- sums of a run, position by position
template <class B, bool first> static inline void vg_add_one(const vg_modes<B>& v, typename B::A* sum, const int64_t* p, int64_t begin, int64_t end) {
  vg_along<B::lanes>(begin, end, [&](auto width, int64_t i) {
    constexpr int W = decltype(width)::lanes;
    auto x = B::template at<W>(p, i, v.pace);
    if constexpr (!first) x = B::template combine<W>(vg_load<W>(sum + i), x);
    vg_store<W>(sum + i, x);
  });
}
template <class B, int W> static inline vg_t<typename B::A, W> vg_four(const vg_modes<B>& v, const int64_t (*p)[B::operands], int64_t i) {
  auto low = B::template combine<W>(B::template at<W>(p[0], i, v.pace), B::template at<W>(p[1], i, v.pace));
  return B::template combine<W>(low, B::template combine<W>(B::template at<W>(p[2], i, v.pace), B::template at<W>(p[3], i, v.pace)));
}
template <class B, bool first> static inline void vg_add_four(const vg_modes<B>& v, typename B::A* sum, const int64_t (*p)[B::operands], int64_t end) {
  vg_along<B::lanes>(0, end, [&](auto width, int64_t i) {
    constexpr int W = decltype(width)::lanes;
    auto x = vg_four<B, W>(v, p, i);
    if constexpr (!first) x = B::template combine<W>(vg_load<W>(sum + i), x);
    vg_store<W>(sum + i, x);
  });
}
template <class B> static inline void vg_join(typename B::A* sum, const typename B::A* by, int64_t count) {
  vg_along<B::lanes>(0, count, [&](auto width, int64_t i) {
    constexpr int W = decltype(width)::lanes;
    vg_store<W>(sum + i, B::template combine<W>(vg_load<W>(sum + i), vg_load<W>(by + i)));
  });
}
// Sums over ``count`` numbers join those over ``filled``, of which there may be fewer.
template <class B> static inline int64_t vg_join_total(typename B::A* total, int64_t filled, const typename B::A* part, int64_t count) {
  vg_join<B>(total, part, filled < count ? filled : count);
  for (int64_t i = filled; i < count; ++i) total[i] = part[i];
  return filled < count ? count : filled;
}

// ---------------------------------------------------------------- combining positions with one another
template <class A, int W> static inline void vg_pairs(const A* x, vg_t<A, W>& even, vg_t<A, W>& odd) {
  if constexpr (W == 1) {
    even = x[0], odd = x[1];
  } else {
    vg_t<A, W> low = vg_load<W>(x), high = vg_load<W>(x + W);
#if __has_builtin(__builtin_shufflevector)
    if constexpr (W == 16) {
      even = __builtin_shufflevector(low, high, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
      odd = __builtin_shufflevector(low, high, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
      return;
    } else if constexpr (W == 8) {
      even = __builtin_shufflevector(low, high, 0, 2, 4, 6, 8, 10, 12, 14);
      odd = __builtin_shufflevector(low, high, 1, 3, 5, 7, 9, 11, 13, 15);
      return;
    }
#endif
    for (int i = 0; i < W / 2; ++i) {
      even[i] = low[2 * i], odd[i] = low[2 * i + 1];
      even[W / 2 + i] = high[2 * i], odd[W / 2 + i] = high[2 * i + 1];
    }
  }
}
// x[i] = combine(x[2 i], x[2 i + 1]), in order.
template <class B> static inline void vg_halve(typename B::A* to, const typename B::A* x, int64_t pairs) {
  vg_along<B::lanes>(0, pairs, [&](auto width, int64_t i) {
    constexpr int W = decltype(width)::lanes;
    vg_t<typename B::A, W> even, odd;
    vg_pairs<typename B::A, W>(x + 2 * i, even, odd);
    vg_store<W>(to + i, B::template combine<W>(even, odd));
  });
}
// Sums in W lanes become one number, which takes up the ``left`` < W numbers from position i on its way.
template <class B, int W, class X> static inline typename B::A vg_narrow(const X& x, vg_t<typename B::A, W> sums, int64_t i, int64_t left) {
  if constexpr (W == 1) {
    return sums;
  } else {
    constexpr int H = W / 2;
    vg_t<typename B::A, H> low, high;
    __builtin_memcpy(&low, &sums, sizeof(low));
    __builtin_memcpy(&high, (const char*)&sums + sizeof(low), sizeof(high));
    low = B::template combine<H>(low, high);
    if (left & H) low = B::template combine<H>(low, x.template at<H>(i));
    return vg_narrow<B, H>(x, low, i + (left & H), left & (H - 1));
  }
}
// One number of n neighbours from position i on, in any order: four vectors of sums, joined by others now and then.
template <class B, int W, class X> static inline typename B::A vg_row(const X& x, int64_t i, int64_t n) {
  if constexpr (W > 1) if (n < W) return vg_row<B, W / 2>(x, i, n);
  vg_t<typename B::A, W> sums = x.template at<W>(i), a[4];
  const int64_t end = i + n;
  i += W;
  if constexpr (W == B::lanes) while (i + 4 * W <= end) {
    const int64_t stop = end - i < vg_quads * 4 * W ? end : i + vg_quads * 4 * W;
    for (int j = 0; j < 4; ++j) a[j] = x.template at<W>(i + j * W);
    for (i += 4 * W; i + 4 * W <= stop; i += 4 * W) {
      for (int j = 0; j < 4; ++j) a[j] = B::template combine<W>(a[j], x.template at<W>(i + j * W));
    }
    sums = B::template combine<W>(sums, B::template combine<W>(B::template combine<W>(a[0], a[1]), B::template combine<W>(a[2], a[3])));
  }
  for (; i + W <= end; i += W) sums = B::template combine<W>(sums, x.template at<W>(i));
  return vg_narrow<B, W>(x, sums, i, end - i);
}
template <class B> struct vg_of_sums {
  const typename B::A* x;
  template <int W> inline vg_t<typename B::A, W> at(int64_t i) const { return vg_load<W>(x + i); }
};
template <class B> struct vg_of_operands {
  const vg_modes<B>& v;
  const int64_t* p;
  template <int W> inline vg_t<typename B::A, W> at(int64_t i) const { return B::template at<W>(p, i, v.pace); }
};
static inline bool vg_by_row(int64_t n) { return n > 8 || n % 2; }  // else many rows share a vector
// ``rows`` slices of n numbers each become one number each, in place.
template <class B> static inline void vg_fold_inner(typename B::A* x, int64_t rows, int64_t n) {
  if constexpr (!B::ordered) {
    if (vg_by_row(n)) {
      for (int64_t r = 0; r < rows; ++r) x[r] = vg_row<B, B::lanes>(vg_of_sums<B>{x}, r * n, n);
      return;
    }
  }
  for (; n > 1 && n % 2 == 0; n /= 2) vg_halve<B>(x, x, rows * n / 2);
  if (n == 1) return;
  for (int64_t r = 0; r < rows; ++r) {
    typename B::A* row = x + r * n;
    int64_t m = n;
    for (; m > 16; m = m / 2 + m % 2) {
      vg_halve<B>(row, row, m / 2);
      if (m % 2) row[m / 2] = row[m - 1];
    }
    typename B::A sum = row[0];
    for (int64_t i = 1; i < m; ++i) sum = B::template combine<1>(sum, row[i]);
    x[r] = sum;
  }
}
// The same for ``rows`` slices of n rows of ``post`` numbers.
template <class B> static inline void vg_fold_outer(typename B::A* x, int64_t rows, int64_t n, int64_t post) {
  for (int64_t r = 0; r < rows; ++r) {
    typename B::A *slice = x + r * n * post, *to = x + r * post;
    for (int64_t m = n; m > 1; m = m / 2 + m % 2) {
      if constexpr (!B::ordered) {  // the last rows join the first
        vg_join<B>(slice, slice + (m - m / 2) * post, m / 2 * post);
        continue;
      }
      for (int64_t j = 0; j < m / 2; ++j) {
        vg_join<B>(slice + 2 * j * post, slice + (2 * j + 1) * post, post);
        if (j) for (int64_t i = 0; i < post; ++i) slice[j * post + i] = slice[2 * j * post + i];
      }
      if (m % 2) for (int64_t i = 0; i < post; ++i) slice[m / 2 * post + i] = slice[(m - 1) * post + i];
    }
    if (r) for (int64_t i = 0; i < post; ++i) to[i] = slice[i];
  }
}
// The reduced ones of the first ``modes`` modes of a run, of ``filled`` positions; gives how many numbers are left.
template <class B> static inline int64_t vg_fold(const vg_modes<B>& v, typename B::A* x, int64_t filled, int64_t modes) {
  int64_t post = 1, pre = filled;
  for (int64_t m = modes - 1; m >= 0; --m) {
    int64_t size = m ? v.run[3 * m] : pre;
    pre /= size;
    if (!v.run[3 * m + 1]) post *= size;
    else if (post == 1) vg_fold_inner<B>(x, pre, size);
    else vg_fold_outer<B>(x, pre, size, post);
  }
  return post;
}

// ---------------------------------------------------------------- a slice: steps [s0, s1) of one kept position
template <class B> struct vg_slice {
  const vg_modes<B>& v;
  vg_cursor<B::operands, 2> kept;
  vg_cursor<B::operands, 1> step;
  int64_t rest, kept_block;  // positions for each entry of the run's outermost mode; its cut, where it is kept
  vg_slice(const vg_modes<B>& modes, int64_t number) : v(modes) {
    kept.seek(v.base, v.kept, v.kept_modes, number);
    rest = v.run_modes ? v.length / v.block : 1;
    kept_block = v.split == 1 ? kept.index[v.kept_modes - 1] : 0;
  }
  int64_t length() const {  // of the run at this step: the last of a cut mode is shorter
    if (!v.split) return v.length;
    int64_t cut = v.split == 1 ? kept_block : step.index[v.reduced_modes - 1];
    int64_t left = v.whole - cut * v.block;
    return (left < v.block ? left : v.block) * rest;
  }
  bool reduces_in_run() const {
    for (int64_t m = 0; m < v.run_modes; ++m) if (v.run[3 * m + 1]) return true;
    return false;
  }
  int64_t in_order(typename B::A* total, typename B::A* part, int64_t s0, int64_t s1) {
    int64_t left = 0;
    step.seek(kept.at, v.reduced, v.reduced_modes, s0);
    for (int64_t s = s0; s < s1; ++s, step.next(v.reduced, v.reduced_modes)) {
      typename B::A* to = s == s0 ? total : part;
      vg_add_one<B, true>(v, to, step.at, 0, length());
      left = vg_fold<B>(v, to, length(), v.run_modes);
      if (s != s0) vg_join<B>(total, part, left);
    }
    return left;
  }
  // One step whose innermost mode is reduced: nothing but its slices' sums is kept.
  int64_t rows(typename B::A* total, int64_t s0) {
    step.seek(kept.at, v.reduced, v.reduced_modes, s0);
    const int64_t all = length(), n = v.run_modes > 1 ? v.run[3 * (v.run_modes - 1)] : all;
    for (int64_t r = 0; r < all / n; ++r) total[r] = vg_row<B, B::lanes>(vg_of_operands<B>{v, step.at}, r * n, n);
    return vg_fold<B>(v, total, all / n, v.run_modes - 1);
  }
  int64_t sum(typename B::A* total, typename B::A* part, int64_t s0, int64_t s1) {
    const bool ends_reduced = v.run_modes && v.run[3 * v.run_modes - 2];
    if constexpr (B::ordered) {
      if (reduces_in_run()) return in_order(total, part, s0, s1);
    } else if (s1 - s0 == 1 && ends_reduced && (v.run_modes == 1 || vg_by_row(v.run[3 * v.run_modes - 3]))) {
      return rows(total, s0);
    }
    int64_t p[4][B::operands], lengths[4], filled = 0, quads = 0, sums = 0;
    step.seek(kept.at, v.reduced, v.reduced_modes, s0);
    typename B::A* to = total;
    for (int64_t s = s0, n; s < s1; s += n) {
      bool equal = true;
      for (n = 0; n < 4 && s + n < s1; ++n, step.next(v.reduced, v.reduced_modes)) {
        for (int k = 0; k < B::operands; ++k) p[n][k] = step.at[k];
        lengths[n] = length();
        equal = equal && lengths[n] == lengths[0];
      }
      if (n == 4 && equal && (filled == 0 || lengths[0] <= filled)) {
        if (filled == 0) vg_add_four<B, true>(v, to, p, filled = lengths[0]);
        else vg_add_four<B, false>(v, to, p, lengths[0]);
      } else {
        for (int64_t j = 0; j < n; ++j) {
          vg_add_one<B, false>(v, to, p[j], 0, lengths[j] < filled ? lengths[j] : filled);
          vg_add_one<B, true>(v, to, p[j], filled, lengths[j]);
          filled = filled < lengths[j] ? lengths[j] : filled;
        }
      }
      if (++quads < vg_quads && s + n < s1) continue;
      sums = to == total ? filled : vg_join_total<B>(total, sums, part, filled);
      to = part, filled = 0, quads = 0;
    }
    return vg_fold<B>(v, total, sums, v.run_modes);
  }
  void write(const typename B::A* x, int64_t count) const {  // the run's kept modes, in order
    int64_t inner = v.run_modes - 1;
    while (inner >= 0 && v.run[3 * inner + 1]) --inner;
    typename B::Out* to = v.out + kept.out;
    if (inner < 0) { vg_store<1>(to, B::template after<1>(x[0])); return; }
    bool is_only = true;
    for (int64_t m = 0; m < inner; ++m) is_only = is_only && v.run[3 * m + 1];
    int64_t pace = v.run[3 * inner + 2], size = is_only ? count : v.run[3 * inner];
    for (int64_t i = 0; i < count; i += size) {
      int64_t place = 0, linear = i / size;
      for (int64_t m = inner - 1; m >= 0; --m) {
        if (v.run[3 * m + 1]) continue;
        place += (m ? linear % v.run[3 * m] : linear) * v.run[3 * m + 2];
        linear /= v.run[3 * m];
      }
      if (pace == 1) {
        vg_along<B::lanes>(0, size, [&](auto width, int64_t j) {
          constexpr int W = decltype(width)::lanes;
          vg_store<W>(to + place + j, B::template after<W>(vg_load<W>(x + i + j)));
        });
      } else {
        for (int64_t j = 0; j < size; ++j) vg_store<1>(to + place + j * pace, B::template after<1>(x[i + j]));
      }
    }
  }
};

template <class B> static int64_t vg_reduce_tasks(int64_t begin, int64_t end, int64_t, void* context) {
  const vg_modes<B>& v = *(const vg_modes<B>*)context;
  alignas(64) typename B::A total[vg_modes<B>::most], part[vg_modes<B>::most];
  for (int64_t task = begin; task < end; ++task) {
    int64_t number = task / v.chunks, chunk = task % v.chunks;
    vg_slice<B> slice(v, number);
    int64_t left = slice.sum(total, part, v.num_steps * chunk / v.chunks, v.num_steps * (chunk + 1) / v.chunks);
    if (v.chunks == 1) slice.write(total, left);
    else __builtin_memcpy(v.partial + task * v.width, total, left * sizeof(total[0]));
  }
  return 0;
}
template <class B> static int64_t vg_combine_chunks(int64_t begin, int64_t end, int64_t, void* context) {
  const vg_modes<B>& v = *(const vg_modes<B>*)context;
  for (int64_t number = begin; number < end; ++number) {
    typename B::A* sums = v.partial + number * v.chunks * v.width;
    vg_slice<B> slice(v, number);
    slice.step.seek(slice.kept.at, v.reduced, v.reduced_modes, 0);
    const int64_t left = v.split == 1 ? v.width * slice.length() / v.length : v.width;
    for (int64_t by = 1; by < v.chunks; by *= 2) {
      for (int64_t c = 0; c + by < v.chunks; c += 2 * by) vg_join<B>(sums + c * v.width, sums + (c + by) * v.width, left);
    }
    slice.write(sums, left);
  }
  return 0;
}
template <class B> static inline void vg_reduce(const int64_t* a) {
  vg_modes<B> v(a);
  vg_run(0, v.num_kept * v.chunks, nullptr, v.num_steps * v.length / v.chunks, vg_reduce_tasks<B>, &v, v.pool);
  if (v.chunks > 1) vg_run(0, v.num_kept, nullptr, v.chunks * v.width, vg_combine_chunks<B>, &v, v.pool);
}
