// The recurrence h_t = φ(V h_{t-1} + u_t), forward and backward, for one instruction set.
//
// This file is compiled once per instruction set (see setup.py) with KREISS_ISA naming it and
// KREISS_VECTOR_BYTES its vector width. It uses the vector extensions of GCC and Clang and no headers of torch.
//
// Threads own rows of the batch for the whole sequence, so nothing waits between time steps. V is packed once per
// pass into panels of two vectors; a register tile is up to six rows by one panel, or up to three rows by several
// panels when there are few rows. Sums run over blocks of K so that a panel block stays in the first-level cache.

#include <cstdint>
#include <cstring>
#include <vector>

#include "kernel.h"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace {

// ------------------------------------------------------------------------------------------------ vectors

constexpr int kVectorBytes = KREISS_VECTOR_BYTES;

#define KREISS_INLINE __attribute__((always_inline)) inline  // sums must stay in registers

template <class T> struct Lanes;
template <> struct Lanes<float> {
  typedef float V __attribute__((vector_size(kVectorBytes)));
  typedef float U __attribute__((vector_size(kVectorBytes), aligned(4)));
  typedef int32_t I __attribute__((vector_size(kVectorBytes)));
  typedef int32_t Int;
  static constexpr int kTerms = 7;       // Taylor terms of expm1 on |r| ≤ ln2/2: below half a unit in the last place
  static constexpr int kMantissa = 23;
  static constexpr int kBias = 127;
  static constexpr float kSaturated = 20.0f;  // tanh is 1 beyond half of this
};
template <> struct Lanes<double> {
  typedef double V __attribute__((vector_size(kVectorBytes)));
  typedef double U __attribute__((vector_size(kVectorBytes), aligned(8)));
  typedef int64_t I __attribute__((vector_size(kVectorBytes)));
  typedef int64_t Int;
  static constexpr int kTerms = 13;
  static constexpr int kMantissa = 52;
  static constexpr int kBias = 1023;
  static constexpr double kSaturated = 40.0;
};

template <class T> constexpr int kWidth = kVectorBytes / (int)sizeof(T);
template <class T> constexpr int kPanel = 2 * kWidth<T>;  // columns of one packed panel
template <class T> constexpr int64_t packed_size(int64_t depth, int64_t n) {
  return (n + kPanel<T> - 1) / kPanel<T> * kPanel<T> * depth;
}

template <class T> inline typename Lanes<T>::V load(const T* p) {
  return *reinterpret_cast<const typename Lanes<T>::U*>(p);
}
template <class T> inline void store(T* p, typename Lanes<T>::V v) {
  *reinterpret_cast<typename Lanes<T>::U*>(p) = v;
}
template <class T> inline typename Lanes<T>::V splat(T x) {
  return x - typename Lanes<T>::V{};
}

// ------------------------------------------------------------------------------------------------ nonlinearities

// tanh|x| = e/(e+2) with e = expm1(2|x|), which keeps full relative accuracy near 0.
template <class T> __attribute__((noinline)) typename Lanes<T>::V tanh_of(typename Lanes<T>::V x) {
  typedef typename Lanes<T>::V V;
  typedef typename Lanes<T>::I I;
  const V zero = {};
  const V a = x < zero ? -x : x;
  V y = a + a;
  y = y > Lanes<T>::kSaturated ? splat<T>(Lanes<T>::kSaturated) : y;  // a NaN stays a NaN
  const T ln2_high = (T)(sizeof(T) == 4 ? 0.693145751953125 : 0.6931471803691238);
  const T ln2_low = (T)(sizeof(T) == 4 ? 1.42860682030941723212e-6 : 1.9082149292705877e-10);
  const I k = __builtin_convertvector(y * (T)1.4426950408889634 + (T)0.5, I);
  const V n = __builtin_convertvector(k, V);
  const V r = (y - n * ln2_high) - n * ln2_low;
  V p = zero;
  T factorial[Lanes<T>::kTerms + 1];
  factorial[0] = 1;
  for (int i = 1; i <= Lanes<T>::kTerms; ++i) factorial[i] = factorial[i - 1] * (T)i;
  for (int i = Lanes<T>::kTerms; i >= 1; --i) p = p * r + (T)1 / factorial[i];
  p = p * r;  // expm1(r)
  const I bits = (k + (typename Lanes<T>::Int)Lanes<T>::kBias) << Lanes<T>::kMantissa;
  V scale;
  std::memcpy(&scale, &bits, sizeof(V));  // 2^k
  const V e = scale * p + (scale - (T)1);
  const V t = e / (e + (T)2);
  const V signed_t = x < zero ? -t : t;
  return x == x ? signed_t : x;
}

// Lanes 2i and 2i+1, the parts of one complex number, exchanged; and their sum in both.
template <class T> KREISS_INLINE typename Lanes<T>::V swapped(typename Lanes<T>::V v) {
  typename Lanes<T>::V out;
  for (int i = 0; i < kWidth<T>; ++i) out[i] = v[i ^ 1];
  return out;
}
template <class T> KREISS_INLINE typename Lanes<T>::V pair_sum(typename Lanes<T>::V v) { return v + swapped<T>(v); }

template <class T> KREISS_INLINE typename Lanes<T>::V root(typename Lanes<T>::V v) {
  for (int i = 0; i < kWidth<T>; ++i) v[i] = sizeof(T) == 4 ? (T)__builtin_sqrtf((float)v[i]) : (T)__builtin_sqrt(v[i]);
  return v;
}

// |z| of pairs of lanes as size·length, and z/size: squares neither overflow nor vanish. length is 0 where z is.
template <class T> struct Modulus {
  typedef typename Lanes<T>::V V;
  V size, part, length;
  KREISS_INLINE explicit Modulus(V z) {
    const V zero = {};
    const V a = z < zero ? -z : z, other = swapped<T>(a);
    const V larger = a > other ? a : other;
    size = larger == zero ? splat<T>(1) : larger;
    part = z / size;
    length = root<T>(pair_sum<T>(part * part));
  }
};

// z·relu(|z| + b)/|z| for pairs of lanes, 0 at z = 0; b is the mean of a pair. `stretch` becomes |h|/|z|.
template <class T>
KREISS_INLINE typename Lanes<T>::V cmodrelu_of(typename Lanes<T>::V z, typename Lanes<T>::V b,
                                               typename Lanes<T>::V& stretch) {
  typedef typename Lanes<T>::V V;
  const V zero = {};
  const Modulus<T> m(z);
  const V r = m.size * m.length + pair_sum<T>(b) * (T)0.5;
  const V length = m.length == zero ? splat<T>(1) : m.length;
  const V scale = m.length == zero ? zero : (r < zero ? zero : r) / length;
  stretch = scale / m.size;
  return m.part * scale;
}

// The gradient to z of that, from the gradient to h: what points along h stays, what turns it is scaled by |h|/|z|,
// which was kept: from |h| − b one does not know |z| where it is small. `along` becomes what reaches the modulus.
template <class T>
KREISS_INLINE typename Lanes<T>::V cmodrelu_back(typename Lanes<T>::V back, typename Lanes<T>::V h,
                                                 typename Lanes<T>::V stretch, typename Lanes<T>::V& along) {
  typedef typename Lanes<T>::V V;
  const V zero = {};
  const Modulus<T> m(h);
  const V u = m.part / (m.length == zero ? splat<T>(1) : m.length);
  along = pair_sum<T>(u * back);
  const V dz = u * along + (back - u * along) * stretch;
  along = stretch == zero ? zero : along;
  return stretch == zero ? zero : dz;
}

// φ is chosen at run time: the branch is the same throughout a pass, and the tiles need not be compiled once for each.
template <class T> KREISS_INLINE typename Lanes<T>::V apply(int phi, typename Lanes<T>::V z, typename Lanes<T>::V b) {
  typedef typename Lanes<T>::V V;
  const V zero = {};
  if (phi == KREISS_MODRELU) {  // sign(z)·relu(|z| + b), 0 at z = 0
    const V m = (z < zero ? -z : z) + b;
    const V r = m < zero ? zero : m;
    const V signed_r = z < zero ? -r : r;
    return z == zero ? zero : signed_r;
  }
  const V s = z + b;
  if (phi == KREISS_TANH) return tanh_of<T>(s);
  return phi == KREISS_RELU ? (s < zero ? zero : s) : s;  // NaN is not < 0 and passes
}

// back·φ'(z), from h = φ(z). A unit that is off stops its gradient, also one that is NaN or infinite, as in torch.
template <class T>
KREISS_INLINE typename Lanes<T>::V through(int phi, typename Lanes<T>::V back, typename Lanes<T>::V h) {
  typedef typename Lanes<T>::V V;
  const V zero = {};
  if (phi == KREISS_MODRELU) return h == zero ? zero : (h == h ? back : back * zero);  // torch's sign(NaN) is 0
  if (phi == KREISS_TANH) return back * ((T)1 - h * h);
  return phi == KREISS_RELU ? (h <= zero ? zero : back) : back;
}

// The first `count` numbers at p, zeros behind; and back. A whole vector where there are enough.
template <class T> KREISS_INLINE typename Lanes<T>::V get(const T* p, int64_t count) {
  if (count >= kWidth<T>) return load<T>(p);
  typename Lanes<T>::V v = {};
  std::memcpy(&v, p, (size_t)count * sizeof(T));
  return v;
}
template <class T> KREISS_INLINE void put(T* p, typename Lanes<T>::V v, int64_t count) {
  if (count >= kWidth<T>)
    store<T>(p, v);
  else
    std::memcpy(p, &v, (size_t)count * sizeof(T));
}

// One number for each pair among `count` lanes: the first of every two to p, and back into both.
template <class T> KREISS_INLINE void put_pairs(T* p, typename Lanes<T>::V v, int64_t count) {
  if (count >= kWidth<T>)
    for (int i = 0; i < kWidth<T> / 2; ++i) p[i] = v[2 * i];
  else
    for (int64_t i = 0; i < count / 2; ++i) p[i] = v[2 * i];
}
template <class T> KREISS_INLINE typename Lanes<T>::V get_pairs(const T* p, int64_t count) {
  typename Lanes<T>::V v = {};
  if (count >= kWidth<T>)
    for (int i = 0; i < kWidth<T>; ++i) v[i] = p[i / 2];
  else
    for (int64_t i = 0; i < count; ++i) v[i] = p[i / 2];
  return v;
}

// ------------------------------------------------------------------------------------------------ products

// acc[r][panel p] += Σ_k a[r][k]·panel_p[k] for k in [0, depth); R rows, P panels side by side.
template <class T, int R, int P>
KREISS_INLINE void multiply(typename Lanes<T>::V (&acc)[R][2 * P], const T* a, int64_t lda, const T* packed,
                     int64_t panel_stride, int64_t depth) {
  typedef typename Lanes<T>::V V;
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
template <class Step, int R, int P>
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
      multiply<T, R, P>(acc, step.x + row * step.inputs, step.inputs, step.packed_inputs + panel * step.inputs * kPanel<T>,
                        step.inputs * kPanel<T>, step.inputs);
  if (step.from)
    multiply<T, R, P>(acc, step.from + row * n + k, n, step.packed + panel * stride + k * kPanel<T>, stride, end - k);
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

template <class Step> inline void panel_rows(const Step& step, int64_t rows, int64_t panel, int64_t k, int64_t end) {
  int64_t r = 0;
  for (; r + 6 <= rows; r += 6) tile<Step, 6, 1>(step, r, panel, k, end);
  switch (rows - r) {
    case 5: tile<Step, 5, 1>(step, r, panel, k, end); break;
    case 4: tile<Step, 4, 1>(step, r, panel, k, end); break;
    case 3: tile<Step, 3, 1>(step, r, panel, k, end); break;
    case 2: tile<Step, 2, 1>(step, r, panel, k, end); break;
    case 1: tile<Step, 1, 1>(step, r, panel, k, end); break;
    default: break;
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

// All rows of one step
template <class Step> inline void product(const Step& step, int64_t rows) {
  const int64_t n = step.n, width = kPanel<typename Step::Number>, panels = (n + width - 1) / width;
  const int64_t block = step.from ? kBlockK : n;
  for (int64_t k = 0; k < n; k += block) {
    const int64_t end = k + block < n ? k + block : n;
    int64_t panel = 0;
    if (rows == 1) panel = wide<Step, 1, 4>(step, panels, k, end);
    if (rows == 2) panel = wide<Step, 2, 3>(step, panels, k, end);
    if (rows == 3) panel = wide<Step, 3, 2>(step, panels, k, end);
    for (; panel < panels; ++panel) panel_rows(step, rows, panel, k, end);
  }
}

// The complex modReLU needs pairs of lanes and a square root, too much for the registers at the end of a tile. So tiles
// do nothing (the identity), and these go over the rows of a step after its product.
template <class T> void turn_pairs(T* z, const T* bias, T* stretch, int64_t rows, int64_t n) {
  typedef typename Lanes<T>::V V;
  for (int64_t r = 0; r < rows; ++r, z += n)
    for (int64_t j = 0; j < n; j += kWidth<T>) {
      V ratio;
      put<T>(z + j, cmodrelu_of<T>(get<T>(z + j, n - j), bias ? get<T>(bias + j, n - j) : V{}, ratio), n - j);
      if (stretch) put_pairs<T>(stretch + (r * n + j) / 2, ratio, n - j);
    }
}
template <class T>
void turn_pairs_back(T* dz, const T* h, const T* stretch, T* grad_bias, int64_t rows, int64_t n) {
  typedef typename Lanes<T>::V V;
  for (int64_t r = 0; r < rows; ++r, dz += n, h += n)
    for (int64_t j = 0; j < n; j += kWidth<T>) {
      V along;
      const V ratio = get_pairs<T>(stretch + (r * n + j) / 2, n - j);
      put<T>(dz + j, cmodrelu_back<T>(get<T>(dz + j, n - j), get<T>(h + j, n - j), ratio, along), n - j);
      if (grad_bias) put<T>(grad_bias + j, get<T>(grad_bias + j, n - j) + along * (T)0.5, n - j);
    }
}

// ------------------------------------------------------------------------------------------------ forward

// h_t = φ(V h_{t−1} + u_t; b) for some rows
template <class T> struct ForwardStep {
  typedef T Number;
  typedef typename Lanes<T>::V V;
  static constexpr bool kHasInputs = true;
  int phi;
  int64_t n, inputs;
  const T *packed, *packed_inputs, *bias;
  const T* from;           // h_{t−1}; null means 0
  T* to;                   // h_t
  T* partial;              // sums over a part of K
  const T* x;              // (rows, inputs) or null
  const int64_t* symbols;  // (rows) or null

  KREISS_INLINE V start(int64_t row, int64_t column, int64_t left) const {
    if (x) return V{};
    if (!symbols) return get<T>(to + row * n + column, left);
    const int64_t panel = column / kPanel<T>;  // a symbol's column of U is a row of every panel
    return load<T>(packed_inputs + (panel * inputs + symbols[row]) * kPanel<T> + column % kPanel<T>);
  }
  KREISS_INLINE V finish(int64_t row, int64_t column, int64_t left, V z) const {
    put<T>(to + row * n + column, apply<T>(phi, z, bias ? get<T>(bias + column, left) : V{}), left);
    return V{};
  }
  void gather(int64_t, int64_t, V) const {}
  KREISS_INLINE void fetch(int64_t at) const { __builtin_prefetch(to + at, 1); }
};

// The state of a row past its end: what it was, or 0 before the first step
template <class T> inline void hold(T* to, const T* from, int64_t n) {
  if (from)
    std::memcpy(to, from, (size_t)n * sizeof(T));
  else
    std::memset(to, 0, (size_t)n * sizeof(T));
}

template <class T> void forward_rows(const kreiss_pass& p, int64_t first, int64_t rows) {
  const int64_t n = p.n;
  const bool pairs = p.nonlinearity == KREISS_CMODRELU;
  ForwardStep<T> step = {};
  step.phi = pairs ? KREISS_IDENTITY : p.nonlinearity;
  step.n = n, step.inputs = p.inputs;
  step.packed = (const T*)p.packed, step.packed_inputs = step.packed + packed_size<T>(n, n);
  step.bias = pairs ? nullptr : (const T*)p.bias;
  step.from = p.h0 ? (const T*)p.h0 + first * n : nullptr;
  for (int64_t i = 0; i < p.steps; ++i) {
    const int64_t t = p.reverse ? p.steps - 1 - i : i, at = t * p.batch + first;
    step.to = step.partial = (T*)p.states + at * n;
    step.x = p.x ? (const T*)p.x + at * p.inputs : nullptr;
    step.symbols = p.symbols ? p.symbols + at : nullptr;
    product(step, rows);
    T* stretch = p.stretch ? (T*)p.stretch + at * n / 2 : nullptr;
    if (pairs) turn_pairs<T>(step.to, (const T*)p.bias, stretch, rows, n);
    if (p.lengths)
      for (int64_t r = 0; r < rows; ++r)
        if (t + p.first_step >= p.lengths[first + r]) {
          hold<T>(step.to + r * n, step.from ? step.from + r * n : nullptr, n);
          if (stretch) hold<T>(stretch + r * n / 2, nullptr, n / 2);  // what padding holds reaches no gradient
        }
    step.from = step.to;
  }
}

// ------------------------------------------------------------------------------------------------ backward

// carry = dz_t V, and from it dz of the step before: (grad + carry)·φ'(h). A row past its end has dz = 0 and keeps
// what it carries. At the end of a piece only the carry is left to do.
template <class T> struct BackwardStep {
  typedef T Number;
  typedef typename Lanes<T>::V V;
  static constexpr bool kHasInputs = false;
  int phi;
  int64_t n, time, from_time;
  const T* packed;
  const T* from;           // dz_t
  T* to;                   // dz of the step before
  T* partial;              // sums over a part of K
  T* carry;
  const T *grad, *states;  // of the step before; grad may be null
  T* grad_bias;
  const int64_t* lengths;
  bool at_end;

  KREISS_INLINE V start(int64_t, int64_t, int64_t) const { return V{}; }
  KREISS_INLINE V finish(int64_t row, int64_t column, int64_t left, V back) const {
    const int64_t at = row * n + column;
    if (lengths && from_time >= lengths[row]) back = get<T>(carry + at, left);
    if (!at_end) return enter(row, column, left, back);
    put<T>(carry + at, back, left);
    return V{};
  }

  // dz from the gradient `back` that reaches h of the step before; returns what it adds to the gradient of the bias
  KREISS_INLINE V enter(int64_t row, int64_t column, int64_t left, V back) const {
    const int64_t at = row * n + column;
    if (grad) back += get<T>(grad + at, left);
    if (lengths && time >= lengths[row]) {
      put<T>(carry + at, back, left);
      put<T>(to + at, V{}, left);
      return V{};
    }
    const V h = get<T>(states + at, left), dz = through<T>(phi, back, h);
    put<T>(to + at, dz, left);
    if (phi == KREISS_MODRELU) return h < V{} ? -dz : dz;  // along sign(z) = sign(h); dz is 0 where h is 0
    return dz;
  }
  KREISS_INLINE void fetch(int64_t at) const {
    if (at_end) return;
    __builtin_prefetch(to + at, 1);
    __builtin_prefetch(states + at);
    if (grad) __builtin_prefetch(grad + at);
  }
  void gather(int64_t column, int64_t left, V sum) const {
    if (grad_bias && !at_end) put<T>(grad_bias + column, get<T>(grad_bias + column, left) + sum, left);
  }
};

// to += x·row
template <class T> inline void add_scaled(T* to, T x, const T* row, int64_t n) {
  for (int64_t j = 0; j < n; j += kWidth<T>) put<T>(to + j, get<T>(to + j, n - j) + x * get<T>(row + j, n - j), n - j);
}

// grad_inputs (inputs, n) += xᵀ dz of some rows: I inputs at once, sums in registers
template <class T, int I>
inline void add_inputs(T* to, const T* x, int64_t inputs, const T* dz, int64_t rows, int64_t n) {
  typedef typename Lanes<T>::V V;
  for (int64_t j = 0; j < n; j += kWidth<T>) {
    V sum[I];
    for (int i = 0; i < I; ++i) sum[i] = get<T>(to + i * n + j, n - j);
    for (int64_t r = 0; r < rows; ++r) {
      const V d = get<T>(dz + r * n + j, n - j);
      for (int i = 0; i < I; ++i) sum[i] += x[r * inputs + i] * d;
    }
    for (int i = 0; i < I; ++i) put<T>(to + i * n + j, sum[i], n - j);
  }
}

template <class T>
inline void add_input_gradient(const kreiss_pass& p, T* to, const T* dz, int64_t at, int64_t rows) {
  const int64_t n = p.n;
  if (p.symbols) {
    for (int64_t r = 0; r < rows; ++r) add_scaled<T>(to + p.symbols[at + r] * n, (T)1, dz + r * n, n);
    return;
  }
  const T* x = (const T*)p.x + at * p.inputs;
  int64_t i = 0;
  for (; i + 8 <= p.inputs; i += 8) add_inputs<T, 8>(to + i * n, x + i, p.inputs, dz, rows, n);
  for (; i + 2 <= p.inputs; i += 2) add_inputs<T, 2>(to + i * n, x + i, p.inputs, dz, rows, n);
  for (; i < p.inputs; ++i) add_inputs<T, 1>(to + i * n, x + i, p.inputs, dz, rows, n);
}

template <class T> void backward_rows(const kreiss_pass& p, int64_t first, int64_t rows, int64_t thread) {
  const int64_t n = p.n;
  T* sums = (T*)p.sums + thread * (p.inputs + 1) * n;  // of the gradient of U, transposed, and of the bias
  T* grad_inputs = p.grad_inputs ? sums : nullptr;
  if (p.first_piece && p.sums) std::memset(sums, 0, (size_t)((p.inputs + 1) * n) * sizeof(T));
  T* grad_bias = p.grad_bias ? sums + p.inputs * n : nullptr;
  const bool pairs = p.nonlinearity == KREISS_CMODRELU;
  BackwardStep<T> step = {};
  step.phi = pairs ? KREISS_IDENTITY : p.nonlinearity;
  step.n = n;
  step.packed = (const T*)p.packed;
  step.carry = (T*)p.carry + first * n;
  step.grad_bias = pairs ? nullptr : grad_bias;
  step.lengths = p.lengths ? p.lengths + first : nullptr;
  for (int64_t i = 0; i < p.steps; ++i) {
    const int64_t t = p.reverse ? i : p.steps - 1 - i, at = t * p.batch + first;
    step.from = step.to, step.from_time = step.time;
    step.time = t + p.first_step;
    step.to = step.partial = (T*)p.inner + at * n;
    step.grad = p.grad ? (const T*)p.grad + at * n : nullptr;
    step.states = (const T*)p.states + at * n;
    if (i) {
      product(step, rows);
    } else {  // the gradient that reaches the last state of the piece is given
      for (int64_t j = 0; j < n; j += kWidth<T>) {
        typename Lanes<T>::V sum = {};
        for (int64_t r = 0; r < rows; ++r) sum += step.enter(r, j, n - j, get<T>(step.carry + r * n + j, n - j));
        step.gather(j, n - j, sum);
      }
    }
    if (pairs) turn_pairs_back<T>(step.to, step.states, (const T*)p.stretch + at * n / 2, grad_bias, rows, n);
    if (grad_inputs) add_input_gradient<T>(p, grad_inputs, step.to, at, rows);
  }
  if (p.last_piece && !p.wants_carry) return;
  step.from = step.to, step.from_time = step.time;
  std::vector<T> scratch(n > kBlockK ? (size_t)(rows * n) : 0);  // not the carry, which rows past their end keep
  step.partial = scratch.data();
  step.at_end = true;
  product(step, rows);
}

// ------------------------------------------------------------------------------------------------ entry points

// Panels of a (depth, n) matrix whose element (k, j) stands at v[k·k_stride + j·n_stride]
template <class T> void pack(const T* v, int64_t depth, int64_t n, int64_t k_stride, int64_t n_stride, T* out) {
  for (int64_t column = 0; column < n; column += kPanel<T>) {
    const int64_t width = n - column < kPanel<T> ? n - column : kPanel<T>;
    for (int64_t k = 0; k < depth; ++k, out += kPanel<T>) {
      for (int64_t j = 0; j < width; ++j) out[j] = v[k * k_stride + (column + j) * n_stride];
      for (int64_t j = width; j < kPanel<T>; ++j) out[j] = 0;
    }
  }
}

// Before a pass: V, and U behind it where inputs are vectors or symbols
template <class T> void prepare_as(const kreiss_pass& p) {
  const int64_t n = p.n;
  T* out = (T*)p.packed;
  if (p.backward) {
    pack<T>((const T*)p.matrix, n, n, n, 1, out);
  } else {
    pack<T>((const T*)p.matrix, n, n, 1, n, out);
    if (p.weight) pack<T>((const T*)p.weight, p.inputs, n, 1, p.inputs, out + packed_size<T>(n, n));
  }
}

// After a pass: the sums of all threads, in their order
template <class T> void gather_as(const kreiss_pass& p, int64_t threads) {
  const int64_t n = p.n, size = (p.inputs + 1) * n;
  T* total = (T*)p.sums;
  for (int64_t thread = 1; thread < threads; ++thread) add_scaled<T>(total, (T)1, (const T*)p.sums + thread * size, size);
  T *weight = (T*)p.grad_inputs, *bias = (T*)p.grad_bias;
  if (weight)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t i = 0; i < p.inputs; ++i) weight[j * p.inputs + i] = total[i * n + j];
  if (bias) std::memcpy(bias, total + p.inputs * n, (size_t)n * sizeof(T));
}

// Denormal numbers are flushed inside the kernel; the caller's floating-point state comes back at the end.
struct FlushDenormals {
#if defined(__SSE2__)
  unsigned int saved;
  FlushDenormals() : saved(_mm_getcsr()) { _mm_setcsr(saved | 0x8040); }
  ~FlushDenormals() { _mm_setcsr(saved); }
#elif defined(__aarch64__)
  uint64_t saved;
  FlushDenormals() {
    asm volatile("mrs %0, fpcr" : "=r"(saved));
    asm volatile("msr fpcr, %0" : : "r"(saved | (1u << 24)));
  }
  ~FlushDenormals() { asm volatile("msr fpcr, %0" : : "r"(saved)); }
#endif
};

template <class T> void rows_of(const kreiss_pass& p, int64_t first, int64_t rows, int64_t thread) {
  FlushDenormals flush;
  (void)flush;
  p.backward ? backward_rows<T>(p, first, rows, thread) : forward_rows<T>(p, first, rows);
}

void run_rows(const kreiss_pass* p, int64_t first, int64_t rows, int64_t thread) {
  if (p->is_double)
    rows_of<double>(*p, first, rows, thread);
  else
    rows_of<float>(*p, first, rows, thread);
}

void prepare(const kreiss_pass* p) { p->is_double ? prepare_as<double>(*p) : prepare_as<float>(*p); }

void gather(const kreiss_pass* p, int64_t threads) {
  p->is_double ? gather_as<double>(*p, threads) : gather_as<float>(*p, threads);
}

}  // namespace

extern "C" const kreiss_kernel KREISS_ISA = {run_rows, prepare, gather, kVectorBytes};
