// The gated recurrence, forward and backward, for one instruction set:
//
//   r, g = sigmoid(W h_{t−1} + s_t + d),  c = φ(r ⊙ V h_{t−1} + u_t; b),  h_t = g ⊙ h_{t−1} + (1 − g) ⊙ c
//
// This file is compiled once per instruction set (see setup.py) with KREISS_ISA naming it. Threads own rows of the batch
// for the whole sequence. Each row of a step has four parts of n numbers, which are overwritten in place: going forward
// the inputs u, s become c, r, g, with V h beside them; going backward they are the gradients of u, s and V h.

#include "products.h"

namespace {

// Rows of the next step come from memory while the products of this one are made, unless they would displace those
template <class T> inline void fetch(const T* rows, int64_t count) {
  const int64_t line = 64 / (int64_t)sizeof(T);
  if (!rows || count > 1024 * line) return;
  for (int64_t i = 0; i < count; i += line) __builtin_prefetch(rows + i);
}

// ------------------------------------------------------------------------------------------------ packed matrices

// W, then V, then [U; S]: panels, or for symbols the columns of [U; S] one after the other
template <class T> struct Packed {
  T *gates, *matrix, *inputs;
  explicit Packed(const kreiss_gated_pass& p) {
    const int64_t n = p.n;
    gates = (T*)p.packed;
    matrix = gates + (p.backward ? packed_size<T>(2 * n, n) : packed_size<T>(n, 2 * n));
    inputs = matrix + packed_size<T>(n, n);
  }
};

template <class T> void prepare_as(const kreiss_gated_pass& p) {
  const int64_t n = p.n;
  const Packed<T> to(p);
  if (p.backward) {
    pack<T>((const T*)p.gates, 2 * n, n, n, 1, to.gates);
    pack<T>((const T*)p.matrix, n, n, n, 1, to.matrix);
    return;
  }
  pack<T>((const T*)p.gates, n, 2 * n, 1, n, to.gates);
  pack<T>((const T*)p.matrix, n, n, 1, n, to.matrix);
  const T* weight = (const T*)p.weight;
  if (p.x) pack<T>(weight, p.inputs, 3 * n, 1, p.inputs, to.inputs);
  if (p.symbols)
    for (int64_t i = 0; i < p.inputs; ++i)
      for (int64_t j = 0; j < 3 * n; ++j) to.inputs[i * 3 * n + j] = weight[j * p.inputs + i];
}

// ------------------------------------------------------------------------------------------------ forward

// One row: gates, candidate and state from what stands in `kept`; `before` is h_{t−1}, null for 0
template <class T> inline void step_row(const kreiss_gated_pass& p, T* kept, const T* before, T* h) {
  typedef typename Lanes<T>::V V;
  const int64_t n = p.n;
  const T *bias = (const T*)p.bias, *gate_bias = (const T*)p.gate_bias;
  each_vector<T>(n, KREISS_BODY {
    V r = get<T>(kept + n + j, left), g = get<T>(kept + 2 * n + j, left);
    if (gate_bias) r += get<T>(gate_bias + j, left), g += get<T>(gate_bias + n + j, left);
    r = sigmoid_of<T>(r), g = sigmoid_of<T>(g);
    const V z = r * get<T>(kept + 3 * n + j, left) + get<T>(kept + j, left);
    const V c = apply<T>(p.nonlinearity, z, bias ? get<T>(bias + j, left) : V{});
    put<T>(kept + j, c, left);
    put<T>(kept + n + j, r, left);
    put<T>(kept + 2 * n + j, g, left);
    put<T>(h + j, g * (before ? get<T>(before + j, left) : V{}) + ((T)1 - g) * c, left);
  });
}

// u and s of some rows into `kept`, unless they are there
template <class T>
inline void enter_inputs(const kreiss_gated_pass& p, const Packed<T>& packed, T* kept, int64_t at, int64_t rows) {
  const int64_t n = p.n;
  if (p.x)
    multiply_rows<T>((const T*)p.x + at * p.inputs, p.inputs, rows, packed.inputs, p.inputs, kept, 4 * n, 3 * n, false);
  if (p.symbols)
    for (int64_t r = 0; r < rows; ++r) hold<T>(kept + r * 4 * n, packed.inputs + p.symbols[at + r] * 3 * n, 3 * n);
}

template <class T> void forward_rows(const kreiss_gated_pass& p, int64_t first, int64_t rows) {
  const int64_t n = p.n;
  const Packed<T> packed(p);
  const T* from = p.h0 ? (const T*)p.h0 + first * n : nullptr;
  for (int64_t i = 0; i < p.steps; ++i) {
    const int64_t t = p.reverse ? p.steps - 1 - i : i, at = t * p.batch + first;
    T *kept = (T*)p.kept + at * 4 * n, *h = (T*)p.states + at * n;
    enter_inputs<T>(p, packed, kept, at, rows);
    if (i + 1 < p.steps) {
      const int64_t next = p.reverse ? -p.batch : p.batch;
      fetch<T>(kept + next * 4 * n, rows * 4 * n);
      fetch<T>(h + next * n, rows * n);
    }
    if (from) {
      multiply_rows<T>(from, n, rows, packed.gates, n, kept + n, 4 * n, 2 * n, true);
      multiply_rows<T>(from, n, rows, packed.matrix, n, kept + 3 * n, 4 * n, n, false);
    }
    for (int64_t r = 0; r < rows; ++r) {
      const T* before = from ? from + r * n : nullptr;
      if (!from) hold<T>(kept + r * 4 * n + 3 * n, nullptr, n);
      if (p.lengths && t + p.first_step >= p.lengths[first + r])
        hold<T>(h + r * n, before, n);
      else
        step_row<T>(p, kept + r * 4 * n, before, h + r * n);
    }
    from = h;
  }
}

// ------------------------------------------------------------------------------------------------ backward

// One row: from the gradient of h_t, which is carry + grad, that of u, s and V h, and in `carry` the part that reaches
// h_{t−1} through the open gate; `sums` (3n), if given, adds up the gradients of b and d
template <class T>
inline void step_row_back(const kreiss_gated_pass& p, const T* kept, const T* before, const T* grad, T* carry, T* inner,
                          T* sums) {
  typedef typename Lanes<T>::V V;
  const int64_t n = p.n;
  const int phi = p.nonlinearity;
  each_vector<T>(n, KREISS_BODY {
    V back = get<T>(carry + j, left);
    if (grad) back += get<T>(grad + j, left);
    const V c = get<T>(kept + j, left), r = get<T>(kept + n + j, left), g = get<T>(kept + 2 * n + j, left);
    const V h = before ? get<T>(before + j, left) : V{};
    const V dz = through<T>(phi, back * ((T)1 - g), c);
    const V to_reset = dz * get<T>(kept + 3 * n + j, left) * r * ((T)1 - r);
    const V to_keep = back * (h - c) * g * ((T)1 - g);
    put<T>(carry + j, back * g, left);
    put<T>(inner + j, dz, left);
    put<T>(inner + n + j, to_reset, left);
    put<T>(inner + 2 * n + j, to_keep, left);
    put<T>(inner + 3 * n + j, dz * r, left);
    if (!sums) return;
    const V to_bias = phi == KREISS_MODRELU ? (c < V{} ? -dz : dz) : dz;  // along sign(z) = sign(c); dz is 0 where c is
    put<T>(sums + j, get<T>(sums + j, left) + to_bias, left);
    put<T>(sums + n + j, get<T>(sums + n + j, left) + to_reset, left);
    put<T>(sums + 2 * n + j, get<T>(sums + 2 * n + j, left) + to_keep, left);
  });
}

// sums (inputs, 3n) += xᵀ [du, ds] of some rows: I inputs at once, sums in registers
template <class T, int I>
inline void add_inputs(T* to, const T* x, int64_t inputs, const T* inner, int64_t rows, int64_t n) {
  typedef typename Lanes<T>::V V;
  for (int64_t j = 0; j < 3 * n; j += kWidth<T>) {
    const int64_t left = 3 * n - j;
    V sum[I];
    for (int i = 0; i < I; ++i) sum[i] = get<T>(to + i * 3 * n + j, left);
    for (int64_t r = 0; r < rows; ++r) {
      const V d = get<T>(inner + r * 4 * n + j, left);
      for (int i = 0; i < I; ++i) sum[i] += x[r * inputs + i] * d;
    }
    for (int i = 0; i < I; ++i) put<T>(to + i * 3 * n + j, sum[i], left);
  }
}

template <class T>
inline void add_input_gradient(const kreiss_gated_pass& p, T* to, const T* inner, int64_t at, int64_t rows) {
  const int64_t n = p.n;
  if (p.symbols) {
    for (int64_t r = 0; r < rows; ++r) add_scaled<T>(to + p.symbols[at + r] * 3 * n, (T)1, inner + r * 4 * n, 3 * n);
    return;
  }
  const T* x = (const T*)p.x + at * p.inputs;
  int64_t i = 0;
  for (; i + 8 <= p.inputs; i += 8) add_inputs<T, 8>(to + i * 3 * n, x + i, p.inputs, inner, rows, n);
  for (; i + 2 <= p.inputs; i += 2) add_inputs<T, 2>(to + i * 3 * n, x + i, p.inputs, inner, rows, n);
  for (; i < p.inputs; ++i) add_inputs<T, 1>(to + i * 3 * n, x + i, p.inputs, inner, rows, n);
}

template <class T> void backward_rows(const kreiss_gated_pass& p, int64_t first, int64_t rows, int64_t thread) {
  const int64_t n = p.n;
  const Packed<T> packed(p);
  T* sums = (T*)p.sums + thread * (p.inputs + 1) * 3 * n;  // of the gradient of [U; S], transposed, and of [b; d]
  if (p.first_piece && p.sums) std::memset(sums, 0, (size_t)((p.inputs + 1) * 3 * n) * sizeof(T));
  T* sums_of_bias = p.grad_bias ? sums + p.inputs * 3 * n : nullptr;
  T* carry = (T*)p.carry + first * n;
  for (int64_t i = 0; i < p.steps; ++i) {
    const int64_t t = p.reverse ? i : p.steps - 1 - i, at = t * p.batch + first;
    const bool at_end = i + 1 == p.steps;  // where what comes before is not among the states of this piece
    const T* h0 = p.h0 ? (const T*)p.h0 + first * n : nullptr;
    const T* before = at_end ? h0 : (const T*)p.states + ((p.reverse ? t + 1 : t - 1) * p.batch + first) * n;
    T* inner = (T*)p.inner + at * 4 * n;
    for (int64_t r = 0; r < rows; ++r) {
      const T* grad = p.grad ? (const T*)p.grad + (at + r) * n : nullptr;
      if (p.lengths && t + p.first_step >= p.lengths[first + r]) {  // it keeps what it carries
        if (grad) add_scaled<T>(carry + r * n, (T)1, grad, n);
        hold<T>(inner + r * 4 * n, nullptr, 4 * n);
      } else {
        step_row_back<T>(p, (const T*)p.kept + (at + r) * 4 * n, before ? before + r * n : nullptr, grad, carry + r * n,
                         inner + r * 4 * n, sums_of_bias);
      }
    }
    if (p.grad_inputs) add_input_gradient<T>(p, sums, inner, at, rows);
    if (at_end && p.last_piece && !p.wants_carry) return;
    if (!at_end) {
      const int64_t next = at + (p.reverse ? p.batch : -p.batch);
      fetch<T>((const T*)p.kept + next * 4 * n, rows * 4 * n);
      fetch<T>((const T*)p.inner + next * 4 * n, rows * 4 * n);
      if (p.grad) fetch<T>((const T*)p.grad + next * n, rows * n);
    }
    multiply_rows<T>(inner + n, 4 * n, rows, packed.gates, 2 * n, carry, n, n, true);
    multiply_rows<T>(inner + 3 * n, 4 * n, rows, packed.matrix, n, carry, n, n, true);
  }
}

// ------------------------------------------------------------------------------------------------ entry points

// After a pass: the sums of all threads, in their order
template <class T> void gather_as(const kreiss_gated_pass& p, int64_t threads) {
  const int64_t wide = 3 * p.n, size = (p.inputs + 1) * wide;
  T* total = (T*)p.sums;
  for (int64_t thread = 1; thread < threads; ++thread) add_scaled<T>(total, (T)1, (const T*)p.sums + thread * size, size);
  T *weight = (T*)p.grad_inputs, *bias = (T*)p.grad_bias;
  if (weight)
    for (int64_t j = 0; j < wide; ++j)
      for (int64_t i = 0; i < p.inputs; ++i) weight[j * p.inputs + i] = total[i * wide + j];
  if (bias) std::memcpy(bias, total + p.inputs * wide, (size_t)wide * sizeof(T));
}

template <class T> void rows_of(const kreiss_gated_pass& p, int64_t first, int64_t rows, int64_t thread) {
  FlushDenormals flush;
  (void)flush;
  p.backward ? backward_rows<T>(p, first, rows, thread) : forward_rows<T>(p, first, rows);
}

void run_rows(const void* pass, int64_t first, int64_t rows, int64_t thread) {
  const kreiss_gated_pass& p = *(const kreiss_gated_pass*)pass;
  p.is_double ? rows_of<double>(p, first, rows, thread) : rows_of<float>(p, first, rows, thread);
}

void prepare(const void* pass) {
  const kreiss_gated_pass& p = *(const kreiss_gated_pass*)pass;
  p.is_double ? prepare_as<double>(p) : prepare_as<float>(p);
}

void gather(const void* pass, int64_t threads) {
  const kreiss_gated_pass& p = *(const kreiss_gated_pass*)pass;
  p.is_double ? gather_as<double>(p, threads) : gather_as<float>(p, threads);
}

}  // namespace

extern "C" const kreiss_recurrence KREISS_NAMED(KREISS_ISA, gated);
extern "C" const kreiss_recurrence KREISS_NAMED(KREISS_ISA, gated) = {run_rows, prepare, gather};
