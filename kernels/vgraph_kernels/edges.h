// Numbers of some edges side by side in a vector: of W edges the first ``num`` count.
// Part of prelude.h, whose vectors it is written in.
// Of ``num`` edges the rows at their other ends; those that do not count have the last one's, which may be read.
template <int W> static inline void vg_some_rows(int32_t* to, const int32_t* rows, int num) {
  if (num == W) __builtin_memcpy(to, rows, W * sizeof(int32_t));
  else for (int i = 0; i < W; ++i) to[i] = rows[i < num ? i : num - 1];
}
// A number of each of these rows.
template <int W, class T> static inline auto vg_gather(const T* p, const int32_t* rows, int64_t step) {
  vg_t<decltype(+vg_load<1>(p)), W> v;
  VG_UNROLL for (int i = 0; i < W; ++i) v[i] = vg_load<1>(p + (int64_t)rows[i] * step);
  return v;
}
template <int W, class T> static inline auto vg_load_some(const T* p, int num) {
  if (num == W) return vg_load<W>(p);
  T room[W];
  for (int i = 0; i < W; ++i) room[i] = p[i < num ? i : num - 1];
  return vg_load<W>((const T*)room);
}
template <int W, class T, class A> static inline void vg_store_some(T* p, A a, int num) {
  if (num == W) return vg_store<W>(p, a);
  T room[W];
  vg_store<W>((T*)room, a);
  for (int i = 0; i < num; ++i) p[i] = room[i];
}
// The last number that counts in place of those that do not.
template <int W, class T> static inline void vg_fill_some(T* p, int num) {
  for (int i = num; i < W; ++i) p[i] = p[num - 1];
}
// The sum, and the largest or smallest, of the numbers that count; NaN where one of these is.
template <class V> static inline vg_elem<V> vg_sum_some(V x, int num) {
  typedef vg_bits<V> I;
  if (num < vg_traits<V>::lanes) x = vg_select<V>(vg_iota<I>() < (vg_elem<I>)num, x, vg_elem<V>(0));
  return vg_lane_sum(x);
}
template <bool largest, class V> static inline vg_elem<V> vg_lane_extreme(V x) {
  if constexpr (vg_traits<V>::lanes == 1) {
    return x;
  } else {
    typedef vg_t<vg_elem<V>, vg_traits<V>::lanes / 2> H;
    H low, high;
    __builtin_memcpy(&low, &x, sizeof(H));
    __builtin_memcpy(&high, (const char*)&x + sizeof(H), sizeof(H));
    vg_extreme<largest>(high, low, false);
    return vg_lane_extreme<largest>(high);
  }
}
