// Teams: T neighbouring lanes of a warp (a power of two) that work on one row, in slots of G lanes an edge.
// Part of prelude.cuh. All that is combined here is combined in an order that depends on T and G alone.
template <int T> VG_FN uint32_t vg_mask() {
  if constexpr (T == 32) return 0xffffffffu;
  else return ((1u << T) - 1u) << (threadIdx.x & 31 & ~(T - 1));
}
template <int T> VG_FN void vg_sync() { if constexpr (T > 1) __syncwarp(vg_mask<T>()); }
template <class V> VG_FN V vg_swap(uint32_t mask, V x, int across) {  // what the lane ``across`` from here holds
  V y;
  VG_UNROLL for (int i = 0; i < vg_traits<V>::lanes; ++i) vg_put(y, i, __shfl_xor_sync(mask, vg_at(x, i), across));
  return y;
}
// The sum over the lanes of a team that lie ``first``, 2 * first ... apart; every lane gets the same number.
template <int T, int first, class V> VG_FN V vg_team_add(V x) {
  VG_UNROLL for (int across = first; across < T; across *= 2) x = x + vg_swap(vg_mask<T>(), x, across);
  return x;
}
template <int T, int first, class V> VG_FN V vg_team_multiply(V x) {
  VG_UNROLL for (int across = first; across < T; across *= 2) x = x * vg_swap(vg_mask<T>(), x, across);
  return x;
}
// ---------------------------------------------------------------- extrema, with the place that they came from
template <bool largest, class E> VG_FN bool vg_beats(E x, E best) {
  return (largest ? x > best : x < best) || (x != x && best == best);
}
template <bool largest, class V> VG_FN void vg_extreme(V& best, V x, bool is_first) {
  VG_UNROLL for (int i = 0; i < vg_traits<V>::lanes; ++i)
    if (is_first || vg_beats<largest>(vg_at(x, i), vg_at(best, i))) vg_put(best, i, vg_at(x, i));
}
template <bool largest, class V, class P> VG_FN void vg_extremum(V& best, P& place, V x, P position) {
  VG_UNROLL for (int i = 0; i < vg_traits<V>::lanes; ++i) {
    const int32_t mine = vg_at(place, i), other = vg_at(position, i);
    const vg_elem<V> a = vg_at(best, i), b = vg_at(x, i);
    const bool tied = a == b || (a != a && b != b);
    if (other >= 0 && (mine < 0 || vg_beats<largest>(b, a) || (tied && other < mine))) {
      vg_put(best, i, b);
      vg_put(place, i, other);
    }
  }
}
template <bool largest, int T, int first, class V> VG_FN void vg_team_extreme(V& best, bool is_empty) {
  VG_UNROLL for (int across = first; across < T; across *= 2) {
    const V other = vg_swap(vg_mask<T>(), best, across);
    const bool none = vg_swap(vg_mask<T>(), (int32_t)is_empty, across);
    if (!none) vg_extreme<largest>(best, other, is_empty);
    is_empty = is_empty && none;
  }
}
template <bool largest, int T, int first, class V, class P> VG_FN void vg_team_extremum(V& best, P& place) {
  VG_UNROLL for (int across = first; across < T; across *= 2) {
    const V other = vg_swap(vg_mask<T>(), best, across);
    const P position = vg_swap(vg_mask<T>(), place, across);
    vg_extremum<largest>(best, place, other, position);
  }
}
// ---------------------------------------------------------------- sums of exp(x - peak) while the peak still rises
template <class V> VG_FN V vg_finite(V peak) {  // what is nothing but -inf lies 0 above it: its weight is 0
  typedef vg_elem<V> E;
  VG_UNROLL for (int i = 0; i < vg_traits<V>::lanes; ++i) if (vg_at(peak, i) == -(E)vg_inf) vg_put(peak, i, E(0));
  return peak;
}
template <class V> VG_FN V vg_fade(V was, V peak) {  // what sums relative to the peak before are multiplied with
  typedef vg_elem<V> E;
  VG_UNROLL for (int i = 0; i < vg_traits<V>::lanes; ++i) {
    const E a = vg_at(was, i), b = vg_at(peak, i);
    vg_put(was, i, a == b || a == -(E)vg_inf ? E(1) : vg_exp(a - b));
  }
  return was;
}
template <class V> VG_FN V vg_raise(V& peak, V x) {
  const V was = peak;
  vg_extreme<true>(peak, x, false);
  return vg_fade(was, peak);
}
template <class V, class P> VG_FN V vg_settle(V sum, P peak, bool has_edges) {  // torch's softmax of -inf is NaN
  typedef vg_elem<V> E;
  VG_UNROLL for (int i = 0; i < vg_traits<V>::lanes; ++i)
    if (has_edges && vg_at(peak, i) == -(E)vg_inf) vg_put(sum, i, (E)vg_nan);
  return sum;
}
// ---------------------------------------------------------------- products with small matrices
// out[f] = bias[f] + sum over k of x[k * step] * w[k][f]; the G lanes of a slot take W columns each.
template <int W, int K, int F, int G, class T, class X, class M, class B>
VG_FN void vg_multiply(T* out, const X* x, int64_t step, const M* w, const B* bias, int lane) {
  typedef vg_t<T, W> V;
  for (int f = lane * W; f < F; f += G * W) {
    V c = vg_set<V>(T(0));
    if (bias) c = vg_set<V>(vg_load<W>(bias + f));
    for (int k = 0; k < K; ++k) c = vg_fma((T)vg_load<1>(x + k * step), vg_set<V>(vg_load<W>(w + k * F + f)), c);
    vg_store<W>(out + f, c);
  }
}
constexpr int vg_block = 8;  // rows whose outer products are summed at once
// sum[k][f] += left[n][k] * right[n][f] over n < rows; the lanes of a team take W columns of a row of sums each.
template <int W, int K, int F, int T, class E>
VG_FN void vg_outer(E* sum, const E* left, const E* right, int rows, int lane) {
  typedef vg_t<E, W> V;
  constexpr int columns = F / W;
  for (int u = lane; u < K * columns; u += T) {
    const int k = u / columns, f = u % columns * W;
    V c = vg_load<W>(sum + k * F + f);
    for (int n = 0; n < rows; ++n) c = vg_fma(left[n * K + k], vg_load<W>(right + n * F + f), c);
    vg_store<W>(sum + k * F + f, c);
  }
}
