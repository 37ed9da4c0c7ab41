// Products of the rows of a batch with a packed matrix, one time step at a time.
//
// A matrix is packed once per pass into panels of two vectors; a register tile is up to six rows by one panel, or up to
// three rows by several panels when there are few rows. Sums run over blocks of K so that a panel block stays in the
// first-level cache.
#pragma once
#include "vectors.h"

namespace {

// acc[r][panel p] += Σ_k a[r][k]·panel_p[k] for k in [0, depth); R rows, P panels side by side. A row that is `Alone` in
// its batch may be summed in another order than one among others, whose bits do not depend on the number of threads.
template <class T, int R, int P, bool Alone = false>
KREISS_INLINE void multiply(typename Lanes<T>::V (&acc)[R][2 * P], const T* a, int64_t lda, const T* packed,
                     int64_t panel_stride, int64_t depth) {
  typedef typename Lanes<T>::V V;
  if constexpr (Alone && P <= 2) {  // so few sums wait for one another: odd k have sums of their own
    V odd[R][2 * P] = {};
    const int64_t pairs = depth / 2 * 2;
    for (int64_t k = 0; k < pairs; k += 2)
      for (int j = 0; j < 2 * P; ++j) {
        const T* at = packed + j / 2 * panel_stride + k * kPanel<T> + j % 2 * kWidth<T>;
        const V even = load<T>(at), next = load<T>(at + kPanel<T>);
        for (int r = 0; r < R; ++r) acc[r][j] += a[r * lda + k] * even, odd[r][j] += a[r * lda + k + 1] * next;
      }
    for (int r = 0; r < R; ++r)
      for (int j = 0; j < 2 * P; ++j) acc[r][j] += odd[r][j];
    a += pairs, packed += pairs * kPanel<T>, depth -= pairs;
  }
  for (int64_t k = 0; k < depth; ++k) {
    V v[2 * P];
    for (int p = 0; p < P; ++p)
      for (int j = 0; j < 2; ++j) v[2 * p + j] = load<T>(packed + p * panel_stride + k * kPanel<T> + j * kWidth<T>);
    for (int r = 0; r < R; ++r) {
      const T x = a[r * lda + k];
      for (int j = 0; j < 2 * P; ++j) acc[r][j] += x * v[j];
    }
  }
}

// R rows by P panels of one step, over [k, end) of the sum. A step says what sums start from and what becomes of them.
template <class Step, int R, int P, bool Alone = false>
inline void tile(const Step& step, int64_t row, int64_t panel, int64_t k, int64_t end) {
  typedef typename Step::Number T;
  typedef typename Lanes<T>::V V;
  const int64_t n = step.n, first = panel * kPanel<T>, stride = n * kPanel<T>;
  V acc[R][2 * P];
  for (int r = 0; r < R; ++r)
    for (int j = 0; j < 2 * P; ++j) {
      const int64_t column = first + j * kWidth<T>, left = n - column;
      acc[r][j] = left <= 0 ? V{} : k ? get<T>(step.partial + (row + r) * n + column, left) : step.start(row + r, column, left);
    }
  if (end == n)  // what the end needs comes from memory while the sums are made
    for (int r = 0; r < R; ++r)
      for (int p = 0; p < P; ++p) step.fetch((row + r) * n + first + p * kPanel<T>);
  if constexpr (Step::kHasInputs)
    if (!k && step.x)
      multiply<T, R, P, Alone>(acc, step.x + row * step.inputs, step.inputs, step.packed_inputs + panel * step.inputs * kPanel<T>,
                        step.inputs * kPanel<T>, step.inputs);
  if (step.from)
    multiply<T, R, P, Alone>(acc, step.from + row * n + k, n, step.packed + panel * stride + k * kPanel<T>, stride, end - k);
  for (int j = 0; j < 2 * P; ++j) {
    const int64_t column = first + j * kWidth<T>, left = n - column;
    if (left <= 0) break;
    if (end < n) {
      for (int r = 0; r < R; ++r) put<T>(step.partial + (row + r) * n + column, acc[r][j], left);
    } else {
      V sum = {};
      for (int r = 0; r < R; ++r) sum += step.finish(row + r, column, left, acc[r][j]);
      step.gather(column, left, sum);
    }
  }
}

constexpr int64_t kMostRows = kreiss_strip(kVectorBytes);  // of a tile

// Tiles of equal height, or with one row more: few rows alone would wait for their own sums
template <class Step> inline void panel_rows(const Step& step, int64_t rows, int64_t panel, int64_t k, int64_t end) {
  const int64_t tiles = (rows + kMostRows - 1) / kMostRows;
  for (int64_t i = 0, r = 0; i < tiles; ++i) {
    const int64_t next = rows * (i + 1) / tiles;
    switch (next - r) {
      case 8: if constexpr (kMostRows == 8) tile<Step, 8, 1>(step, r, panel, k, end); break;
      case 7: if constexpr (kMostRows == 8) tile<Step, 7, 1>(step, r, panel, k, end); break;
      case 6: tile<Step, 6, 1>(step, r, panel, k, end); break;
      case 5: tile<Step, 5, 1>(step, r, panel, k, end); break;
      case 4: tile<Step, 4, 1>(step, r, panel, k, end); break;
      case 3: tile<Step, 3, 1>(step, r, panel, k, end); break;
      case 2: tile<Step, 2, 1>(step, r, panel, k, end); break;
      default: tile<Step, 1, 1>(step, r, panel, k, end);
    }
    r = next;
  }
}

// Several panels at once for few rows: more independent sums to hide the latency of a multiply-add.
template <class Step, int R, int P>
inline int64_t wide(const Step& step, int64_t panels, int64_t k, int64_t end) {
  int64_t panel = 0;
  for (; panel + P <= panels; panel += P) tile<Step, R, P>(step, 0, panel, k, end);
  return panel;
}

constexpr int64_t kBlockK = 512;

// All rows of one step; Alone: the one row of a batch
template <bool Alone = false, class Step> inline void product(const Step& step, int64_t rows) {
  const int64_t n = step.n, width = kPanel<typename Step::Number>, panels = (n + width - 1) / width;
  const int64_t block = step.from ? kBlockK : n;
  for (int64_t k = 0; k < n; k += block) {
    const int64_t end = k + block < n ? k + block : n;
    int64_t panel = 0;
    if (rows == 1) panel = wide<Step, 1, 4>(step, panels, k, end);
    if (rows == 1 && panel + 2 <= panels) tile<Step, 1, 2, Alone>(step, 0, panel, k, end), panel += 2;
    if (Alone && panel < panels) tile<Step, 1, 1, Alone>(step, 0, panel, k, end), ++panel;
    if (rows == 2) panel = wide<Step, 2, 3>(step, panels, k, end);
    if (rows == 3) panel = wide<Step, 3, 2>(step, panels, k, end);
    for (; panel < panels; ++panel) panel_rows(step, rows, panel, k, end);
  }
}

// out (+)= a·M for R rows and P panels, over `depth` rows of the packed matrix
template <class T, int R, int P>
inline void product_tile(const T* a, int64_t lda, const T* packed, int64_t stride, int64_t depth, T* out, int64_t ldo,
                         int64_t left, bool add) {
  typename Lanes<T>::V acc[R][2 * P] = {};
  multiply<T, R, P>(acc, a, lda, packed, stride, depth);
  for (int r = 0; r < R; ++r)
    for (int j = 0; j < 2 * P && j * kWidth<T> < left; ++j) {
      T* to = out + r * ldo + j * kWidth<T>;
      const int64_t rest = left - j * kWidth<T>;
      put<T>(to, add ? acc[r][j] + get<T>(to, rest) : acc[r][j], rest);
    }
}

// out (rows, columns) = a (rows, depth)·M, or with `add` added to it; M (depth, columns) is packed
template <class T>
inline void multiply_rows(const T* a, int64_t lda, int64_t rows, const T* packed, int64_t depth, T* out, int64_t ldo,
                          int64_t columns, bool add) {
  const int64_t panels = (columns + kPanel<T> - 1) / kPanel<T>, stride = depth * kPanel<T>;
  for (int64_t k = 0; k < depth; k += kBlockK, add = true) {
    const int64_t part = depth - k < kBlockK ? depth - k : kBlockK;
    for (int64_t panel = 0; panel < panels;) {
      const T* m = packed + panel * stride + k * kPanel<T>;
      T* to = out + panel * kPanel<T>;
      const int64_t left = columns - panel * kPanel<T>;
      if (rows == 1 && panel + 4 <= panels) {
        product_tile<T, 1, 4>(a + k, lda, m, stride, part, to, ldo, left, add), panel += 4;
      } else if (rows == 2 && panel + 3 <= panels) {
        product_tile<T, 2, 3>(a + k, lda, m, stride, part, to, ldo, left, add), panel += 3;
      } else {
        int64_t r = 0;
        for (; r + 6 <= rows; r += 6)
          product_tile<T, 6, 1>(a + r * lda + k, lda, m, stride, part, to + r * ldo, ldo, left, add);
        const T* rest = a + r * lda + k;
        switch (rows - r) {
          case 5: product_tile<T, 5, 1>(rest, lda, m, stride, part, to + r * ldo, ldo, left, add); break;
          case 4: product_tile<T, 4, 1>(rest, lda, m, stride, part, to + r * ldo, ldo, left, add); break;
          case 3: product_tile<T, 3, 1>(rest, lda, m, stride, part, to + r * ldo, ldo, left, add); break;
          case 2: product_tile<T, 2, 1>(rest, lda, m, stride, part, to + r * ldo, ldo, left, add); break;
          case 1: product_tile<T, 1, 1>(rest, lda, m, stride, part, to + r * ldo, ldo, left, add); break;
          default: break;
        }
        ++panel;
      }
    }
  }
}

constexpr int64_t kSquare = 32;  // transposed in pieces, which the first-level cache holds

// One panel of a (depth, width) matrix whose element (k, j) stands at v[k·k_stride + j·n_stride]; missing columns are 0
template <class T>
void pack_panel(const T* v, int64_t depth, int64_t width, int64_t k_stride, int64_t n_stride, T* out) {
  if (width < kPanel<T>) std::memset(out, 0, (size_t)(depth * kPanel<T>) * sizeof(T));
  if (n_stride == 1 && width == kPanel<T>) {
    for (int64_t k = 0; k < depth; ++k)
      for (int j = 0; j < 2; ++j)
        store<T>(out + k * kPanel<T> + j * kWidth<T>, load<T>(v + k * k_stride + j * kWidth<T>));
  } else {
    for (int64_t start = 0; start < depth; start += kSquare)
      for (int64_t j = 0; j < width; ++j)
        for (int64_t k = start; k < start + kSquare && k < depth; ++k)
          out[k * kPanel<T> + j] = v[k * k_stride + j * n_stride];
  }
}

// All panels of a (depth, n) matrix
template <class T> void pack(const T* v, int64_t depth, int64_t n, int64_t k_stride, int64_t n_stride, T* out) {
  for (int64_t column = 0; column < n; column += kPanel<T>, out += depth * kPanel<T>) {
    const int64_t width = n - column < kPanel<T> ? n - column : kPanel<T>;
    pack_panel<T>(v + column * n_stride, depth, width, k_stride, n_stride, out);
  }
}

// to += x·row
template <class T> inline void add_scaled(T* to, T x, const T* row, int64_t n) {
  for (int64_t j = 0; j < n; j += kWidth<T>) put<T>(to + j, get<T>(to + j, n - j) + x * get<T>(row + j, n - j), n - j);
}

// The state of a row past its end: what it was, or 0 before the first step
template <class T> inline void hold(T* to, const T* from, int64_t n) {
  if (from)
    std::memcpy(to, from, (size_t)n * sizeof(T));
  else
    std::memset(to, 0, (size_t)n * sizeof(T));
}

}  // namespace
