// Orthogonal matrices at their base point P, compiled once per instruction set: the Schur map V = P(Λ + T)Pᵀ, gradients
// of it and of P, and the move of P to P·r(A).
//
// Work is shared by panels, blocks of columns that a thread packs for itself. Every sum runs over k in order, so that
// results do not depend on the number of threads. A phase starts when the one before it is complete.

#include <cmath>

#include "products.h"

namespace {

template <class T> T* at(const void* p) { return (T*)p; }

// The four matrices of intermediate results, and behind them room for a packed panel of each thread
template <class T> T* buffer(const kreiss_base_pass& pass, int64_t i) { return at<T>(pass.room) + i * pass.n * pass.n; }
template <class T> T* panel_room(const kreiss_base_pass& pass, int64_t thread) {
  return buffer<T>(pass, 4) + thread * pass.n * kPanel<T>;
}

// ------------------------------------------------------------------------------------------------ products

// out = start + scale·A·B; without `start` from 0
template <class T> struct Product {
  int64_t n;
  const T* a;
  bool across;                         // whether A is the transpose of what is at `a`
  const T* b;
  int64_t k_stride, column_stride;     // between the elements of B
  T* out;
  const T* start = nullptr;
  T scale = 1;
  int64_t first = 0, last = n;         // rows of B that are not zero in this panel
  bool upper = false;                  // whether A is zero below its diagonal, up to 2×2 blocks
};

// A·B, Aᵀ·B and A·Bᵀ
template <class T> Product<T> plain(int64_t n, const T* a, const T* b, T* out) { return {n, a, false, b, n, 1, out}; }
template <class T> Product<T> left(int64_t n, const T* a, const T* b, T* out) { return {n, a, true, b, n, 1, out}; }
template <class T> Product<T> right(int64_t n, const T* a, const T* b, T* out) { return {n, a, false, b, 1, n, out}; }

template <class T, int R>
KREISS_INLINE void multiply_across(typename Lanes<T>::V (&acc)[R][2], const T* a, int64_t lda, const T* packed,
                                   int64_t depth) {
  for (int64_t k = 0; k < depth; ++k) {
    const typename Lanes<T>::V v[2] = {load<T>(packed + k * kPanel<T>), load<T>(packed + k * kPanel<T> + kWidth<T>)};
    for (int r = 0; r < R; ++r)
      for (int j = 0; j < 2; ++j) acc[r][j] += a[k * lda + r] * v[j];
  }
}

template <class T> KREISS_INLINE void finish(const Product<T>& p, typename Lanes<T>::V sum, int64_t to, int64_t count) {
  sum = sum * p.scale;
  put<T>(p.out + to, p.start ? get<T>(p.start + to, count) + sum : sum, count);
}

template <class T, int R> void strip(const Product<T>& p, int64_t row, int64_t column, const T* packed) {
  typename Lanes<T>::V acc[R][2] = {};
  const int64_t n = p.n, first = p.upper && row > p.first ? row : p.first;  // rows are even: blocks are not cut
  const T* b = packed + (first - p.first) * kPanel<T>;
  if (p.across)
    multiply_across<T, R>(acc, p.a + first * n + row, n, b, p.last - first);
  else
    multiply<T, R, 1>(acc, p.a + row * n + first, n, b, 0, p.last - first);
  const bool whole = n - column >= kPanel<T>;
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      const int64_t to = (row + r) * n + column + j * kWidth<T>;
      const int64_t rest = whole ? (int64_t)kWidth<T> : n - column - j * kWidth<T>;
      if (rest > 0) finish<T>(p, acc[r][j], to, rest);
    }
}

template <class T> void multiply_panel(const Product<T>& p, int64_t column, T* packed) {
  const int64_t width = p.n - column < kPanel<T> ? p.n - column : kPanel<T>;
  const T* b = p.b + p.first * p.k_stride + column * p.column_stride;
  pack_panel<T>(b, p.last - p.first, width, p.k_stride, p.column_stride, packed);
  int64_t row = 0;
  for (; row + 6 <= p.n; row += 6) strip<T, 6>(p, row, column, packed);
  switch (p.n - row) {
    case 5: strip<T, 5>(p, row, column, packed); break;
    case 4: strip<T, 4>(p, row, column, packed); break;
    case 3: strip<T, 3>(p, row, column, packed); break;
    case 2: strip<T, 2>(p, row, column, packed); break;
    case 1: strip<T, 1>(p, row, column, packed); break;
    default: break;
  }
}

// ------------------------------------------------------------------------------------------------ the Schur map

// Where row `row` of T starts among the packed couplings, and how many entries it has: those inside 2×2 blocks are left
// out, but for blocks as printed in the paper.
struct PackedRow {
  int64_t start, count;
  PackedRow(const kreiss_base_pass& pass, int64_t row) {
    const int64_t pairs = pass.printed ? 0 : pass.pairs, before = row / 2 < pairs ? row / 2 : pairs;
    start = row * (row - 1) / 2 - before;
    count = row - (row % 2 && row < 2 * pairs);
  }
};

// A block γ[[cos θ, −e^κ sin θ], [e^−κ sin θ, cos θ]]
template <class T> struct Block {
  T radius, cosine, sine, stretch, shrink;
  Block(const kreiss_base_pass& pass, int64_t i) {
    const T angle = at<T>(pass.angle)[i], shear = pass.shear ? at<T>(pass.shear)[i] : 0;
    radius = pass.radius ? at<T>(pass.radius)[i] : (T)pass.fixed_radius;
    cosine = std::cos(angle), sine = std::sin(angle), stretch = std::exp(shear), shrink = std::exp(-shear);
  }
};

// Columns [first, last) of Λ + T
template <class T> void fill_core(const kreiss_base_pass& pass, int64_t first, int64_t last) {
  const int64_t n = pass.n;
  T* core = at<T>(pass.core);
  for (int64_t row = 0; row < n; ++row) {
    T* to = core + row * n;
    std::memset(to + first, 0, (size_t)(last - first) * sizeof(T));
    const PackedRow packed(pass, row);
    const int64_t count = (packed.count < last ? packed.count : last) - first;
    if (count > 0) std::memcpy(to + first, at<T>(pass.coupling) + packed.start + first, (size_t)count * sizeof(T));
  }
  for (int64_t i = first; i < last; ++i) {
    if (i < 2 * pass.pairs) {
      const Block<T> block(pass, i / 2);
      core[i * n + i] = block.radius * block.cosine;
      if (i % 2)
        core[(i - 1) * n + i] = -block.radius * block.sine * block.stretch;
      else
        core[(i + 1) * n + i] += block.radius * block.sine * block.shrink;
    } else {
      const int64_t single = i - pass.pairs;
      const T radius = pass.radius ? at<T>(pass.radius)[single] : (T)pass.fixed_radius;
      core[i * n + i] = single - pass.pairs < pass.positive ? radius : -radius;
    }
  }
}

// Gradients of the parameters of Λ and T in columns [first, last), from that of Λ + T
template <class T> void core_gradient(const kreiss_base_pass& pass, const T* d, int64_t first, int64_t last) {
  const int64_t n = pass.n;
  for (int64_t row = 0; row < n; ++row) {
    const PackedRow packed(pass, row);
    const int64_t count = (packed.count < last ? packed.count : last) - first;
    if (count > 0)
      std::memcpy(at<T>(pass.grad_coupling) + packed.start + first, d + row * n + first, (size_t)count * sizeof(T));
  }
  for (int64_t i = first; i < last; ++i) {
    if (i >= 2 * pass.pairs) {
      const int64_t single = i - pass.pairs;
      if (pass.grad_radius)
        at<T>(pass.grad_radius)[single] = single - pass.pairs < pass.positive ? d[i * n + i] : -d[i * n + i];
    } else if (i % 2 == 0) {
      const Block<T> block(pass, i / 2);
      const T along = d[i * n + i] + d[(i + 1) * n + i + 1];
      const T upper = -d[i * n + i + 1] * block.stretch, lower = d[(i + 1) * n + i] * block.shrink;
      at<T>(pass.grad_angle)[i / 2] = block.radius * ((upper + lower) * block.cosine - along * block.sine);
      if (pass.grad_shear) at<T>(pass.grad_shear)[i / 2] = block.radius * block.sine * (upper - lower);
      if (pass.grad_radius) at<T>(pass.grad_radius)[i / 2] = along * block.cosine + (upper + lower) * block.sine;
    }
  }
}

// Columns [first, last) of the packed K − Kᵀ
template <class T> void pack_skew(const kreiss_base_pass& pass, const T* k, int64_t first, int64_t last) {
  const int64_t n = pass.n;
  for (int64_t start = first; start < n; start += kSquare) {
    const int64_t end = start + kSquare < n ? start + kSquare : n;
    T above[kPanel<T>][kSquare];  // Kᵀ, read along its rows
    for (int64_t j = first; j < last; ++j)
      std::memcpy(above[j - first], k + j * n + start, (size_t)(end - start) * sizeof(T));
    for (int64_t row = start; row < end; ++row) {
      T* to = at<T>(pass.grad_free) + row * (row - 1) / 2;
      for (int64_t j = first; j < last && j < row; ++j) to[j] = k[row * n + j] - above[j - first][row - start];
    }
  }
}

// ------------------------------------------------------------------------------------------------ moving the base

// Columns [first, last) of E = A/2
template <class T> void fill_half(const kreiss_base_pass& pass, T* e, int64_t first, int64_t last) {
  const int64_t n = pass.n;
  const T* free = at<T>(pass.free);
  for (int64_t row = 0; row < n; ++row)
    for (int64_t j = first; j < last; ++j)
      e[row * n + j] = j < row ? free[row * (row - 1) / 2 + j] * (T)0.5
                     : j > row ? free[j * (j - 1) / 2 + row] * (T)-0.5 : 0;
}

// E + E² in columns [first, last), and the sum of squares of E²
template <class T> double add_square(int64_t n, const T* e, const T* square, T* out, int64_t first, int64_t last) {
  double sums[kPanel<T>] = {};
  for (int64_t row = 0; row < n; ++row)
    for (int64_t j = first; j < last; ++j) {
      const T x = square[row * n + j];
      out[row * n + j] = e[row * n + j] + x;
      sums[j - first] += (double)x * (double)x;
    }
  double sum = 0;
  for (double part : sums) sum += part;
  return sum;
}

// Rows [first, last) of P·probe
template <class T> void probe_rows(const kreiss_base_pass& pass, const T* p, int64_t first, int64_t last) {
  const int64_t n = pass.n;
  for (int64_t row = first; row < last; ++row) {
    double sums[8] = {};
    int64_t j = 0;
    for (; j + 8 <= n; j += 8)
      for (int i = 0; i < 8; ++i) sums[i] += (double)p[row * n + j + i] * pass.probe[j + i];
    for (; j < n; ++j) sums[0] += (double)p[row * n + j] * pass.probe[j];
    pass.probed[row] = 0;
    for (double part : sums) pass.probed[row] += part;
  }
}

// Σ (PᵀP·probe − probe)² over columns [first, last)
template <class T> double probe_columns(const kreiss_base_pass& pass, const T* p, int64_t first, int64_t last) {
  double sums[kPanel<T>] = {}, off = 0;
  for (int64_t row = 0; row < pass.n; ++row)
    for (int64_t j = first; j < last; ++j) sums[j - first] += (double)p[row * pass.n + j] * pass.probed[row];
  for (int64_t j = first; j < last; ++j) {
    const double difference = sums[j - first] - pass.probe[j];
    off += difference * difference;
  }
  return off;
}

// ------------------------------------------------------------------------------------------------ phases

template <class T> void backward_phase(const kreiss_base_pass& pass, int64_t first, int64_t last, T* packed) {
  const int64_t n = pass.n;
  T *z = buffer<T>(pass, 0), *d = buffer<T>(pass, 1), *k = buffer<T>(pass, 2);
  const T *p = at<T>(pass.base), *core = at<T>(pass.core), *grad = at<T>(pass.grad);
  switch (pass.phase) {
    case KREISS_FROM_RIGHT: return multiply_panel<T>(plain<T>(n, grad, p, z), first, packed);  // G P
    case KREISS_FROM_LEFT: return multiply_panel<T>(left<T>(n, p, z, d), first, packed);  // D = Pᵀ G P
    case KREISS_COMMUTATOR: {  // K = D Mᵀ − Mᵀ D with M = Λ + T
      core_gradient<T>(pass, d, first, last);
      if (!pass.grad_free) return;
      Product<T> product = right<T>(n, d, core, k);
      product.last = last;
      multiply_panel<T>(product, first, packed);
      product = left<T>(n, core, d, k);
      product.upper = true, product.start = k, product.scale = -1;
      return multiply_panel<T>(product, first, packed);
    }
    case KREISS_TURNED: return multiply_panel<T>(left<T>(n, p, grad, k), first, packed);  // Pᵀ G
    default: return pack_skew<T>(pass, k, first, last);
  }
}

template <class T> void rebase_phase(const kreiss_base_pass& pass, int64_t first, int64_t last, T* packed) {
  const int64_t n = pass.n, panel = first / kPanel<T>;
  T *e = buffer<T>(pass, 0), *square = buffer<T>(pass, 1), *series = buffer<T>(pass, 2), *spare = buffer<T>(pass, 3);
  const auto sum_of = [&](int32_t pairs) { return pairs == 1 ? series : pairs % 2 ? spare : e; };  // E + E² + …
  T* moved = sum_of(pass.pair) == spare ? e : spare;
  switch (pass.phase) {
    case KREISS_HALF: return fill_half<T>(pass, e, first, last);
    case KREISS_SQUARE:
      multiply_panel<T>(plain<T>(n, e, e, square), first, packed);
      pass.sums[panel] = add_square<T>(n, e, square, series, first, last);
      return;
    case KREISS_SERIES: {  // two powers more
      Product<T> product = plain<T>(n, sum_of(pass.pair), square, sum_of(pass.pair + 1));
      product.start = series;
      return multiply_panel<T>(product, first, packed);
    }
    case KREISS_MOVE: {  // B + 2B(E + E² + …)
      Product<T> product = plain<T>(n, at<T>(pass.base), sum_of(pass.pair), moved);
      product.start = at<T>(pass.base), product.scale = 2;
      return multiply_panel<T>(product, first, packed);
    }
    case KREISS_PROBE_ROWS: return probe_rows<T>(pass, moved, first, last);
    case KREISS_PROBE_COLUMNS: pass.sums[panel] = probe_columns<T>(pass, moved, first, last); return;
    case KREISS_GRAM: {  // 3I − PᵀP
      Product<T> product = left<T>(n, moved, moved, square);
      product.scale = -1;
      multiply_panel<T>(product, first, packed);
      for (int64_t i = first; i < last; ++i) square[i * n + i] += 3;
      return;
    }
    case KREISS_POLISH: {  // P(3I − PᵀP)/2
      Product<T> product = plain<T>(n, moved, square, at<T>(pass.base));
      product.scale = (T)0.5;
      return multiply_panel<T>(product, first, packed);
    }
    default:  // the base becomes what was computed
      for (int64_t row = 0; row < n; ++row)
        std::memcpy(at<T>(pass.base) + row * n + first, moved + row * n + first, (size_t)(last - first) * sizeof(T));
  }
}

template <class T> void run_panel(const kreiss_base_pass& pass, int64_t first, int64_t last, T* packed) {
  const int64_t n = pass.n;
  const T* p = at<T>(pass.base);
  if (pass.phase >= KREISS_HALF) return rebase_phase<T>(pass, first, last, packed);
  if (pass.phase >= KREISS_FROM_RIGHT) return backward_phase<T>(pass, first, last, packed);
  if (pass.phase == KREISS_CORE) {
    fill_core<T>(pass, first, last);
    Product<T> product = plain<T>(n, p, at<T>(pass.core), buffer<T>(pass, 0));  // P M
    product.first = first;
    multiply_panel<T>(product, first, packed);
  } else {
    multiply_panel<T>(right<T>(n, buffer<T>(pass, 0), p, at<T>(pass.matrix)), first, packed);  // P M Pᵀ
  }
}

// The panels of a thread: to and fro, so that panels of rising cost are shared evenly
template <class T> void run_share(const kreiss_base_pass& pass, int64_t thread) {
  const FlushDenormals flush;
  for (int64_t panel = 0; panel * kPanel<T> < pass.n; ++panel) {
    const int64_t place = panel % pass.threads;
    if ((panel / pass.threads % 2 ? pass.threads - 1 - place : place) != thread) continue;
    const int64_t first = panel * kPanel<T>, last = first + kPanel<T> < pass.n ? first + kPanel<T> : pass.n;
    run_panel<T>(pass, first, last, panel_room<T>(pass, thread));
  }
}

void run_rows(const void* pass_, int64_t first, int64_t rows, int64_t) {
  const kreiss_base_pass& pass = *(const kreiss_base_pass*)pass_;
  for (int64_t thread = first; thread < first + rows; ++thread)
    pass.is_double ? run_share<double>(pass, thread) : run_share<float>(pass, thread);
}

void nothing(const void*) {}
void nothing_after(const void*, int64_t) {}

}  // namespace

extern "C" const kreiss_recurrence KREISS_NAMED(KREISS_ISA, basepoint) = {run_rows, nothing, nothing_after};
