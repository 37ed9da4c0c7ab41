// Plain C interface of the recurrence kernel: raw pointers, no headers of torch or Python.
#pragma once
#include <cstdint>

enum { KREISS_IDENTITY = 0, KREISS_TANH = 1, KREISS_RELU = 2, KREISS_MODRELU = 3 };

// One pass over `steps` time steps. Arrays are contiguous, time-major (steps, batch, n).
// Inputs come in one of three ways: already in `states` as u; as vectors x with U packed; as symbols, rows of a table.
struct kreiss_pass {
  int64_t steps, batch, n;
  int64_t inputs;              // features of x, or number of symbols
  int64_t first_step;          // of this piece in the whole sequence, for `lengths` (backward)
  int32_t is_double, nonlinearity, reverse, backward;
  const void* packed;          // V packed by kreiss_pack: transposed for forward, plain for backward
  const void* packed_inputs;   // forward: U packed, with x
  void* states;                // forward: out h (in: u, without x and symbols); backward: h
  const void* h0;              // forward: (batch, n)
  const void* bias;            // forward: (n) or null; added to z, or the threshold of modReLU
  const int64_t* lengths;      // (batch) or null
  const void* x;               // (steps, batch, inputs) or null
  const int64_t* symbols;      // (steps, batch) or null
  const void* table;           // forward: (inputs, n), with symbols
  const void* grad;            // backward: gradient of the states (steps, batch, n), or null
  void* inner;                 // backward: out, gradient of u (steps, batch, n)
  void* carry;                 // backward: in and out, gradient of the state after / before the piece (batch, n)
  void* grad_inputs;           // backward: (threads, inputs, n), adds the gradient of U transposed; or null
  void* grad_bias;             // backward: (threads, n), adds the gradient of the bias; or null
};

struct kreiss_kernel {
  void (*run_rows)(const kreiss_pass*, int64_t first, int64_t rows, int64_t thread);
  void (*pack)(int is_double, const void* v, int64_t depth, int64_t n, int64_t k_stride, int64_t n_stride, void* out);
  int vector_bytes;
};
