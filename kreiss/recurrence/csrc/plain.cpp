// The recurrence h_t = φ(V h_{t-1} + u_t), forward and backward, for one instruction set.
//
// This file is compiled once per instruction set (see setup.py) with KREISS_ISA naming it. Threads own rows of the batch
// for the whole sequence, so nothing waits between time steps.

#include "products.h"

namespace {

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
    p.batch == 1 ? product<true>(step, rows) : product(step, rows);
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
  if (p.last) std::memcpy((T*)p.last + first * n, step.to, (size_t)(rows * n) * sizeof(T));
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
      p.batch == 1 ? product<true>(step, rows) : product(step, rows);
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

template <class T> void rows_of(const kreiss_pass& p, int64_t first, int64_t rows, int64_t thread) {
  FlushDenormals flush;
  (void)flush;
  p.backward ? backward_rows<T>(p, first, rows, thread) : forward_rows<T>(p, first, rows);
}

void run_rows(const void* pass, int64_t first, int64_t rows, int64_t thread) {
  const kreiss_pass& p = *(const kreiss_pass*)pass;
  p.is_double ? rows_of<double>(p, first, rows, thread) : rows_of<float>(p, first, rows, thread);
}

void prepare(const void* pass) {
  const kreiss_pass& p = *(const kreiss_pass*)pass;
  p.is_double ? prepare_as<double>(p) : prepare_as<float>(p);
}

void gather(const void* pass, int64_t threads) {
  const kreiss_pass& p = *(const kreiss_pass*)pass;
  p.is_double ? gather_as<double>(p, threads) : gather_as<float>(p, threads);
}

}  // namespace

extern "C" const kreiss_recurrence KREISS_NAMED(KREISS_ISA, plain);
extern "C" const kreiss_recurrence KREISS_NAMED(KREISS_ISA, plain) = {run_rows, prepare, gather};
