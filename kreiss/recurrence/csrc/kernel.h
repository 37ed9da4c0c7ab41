// Plain C interface of the recurrence kernels: raw pointers, no headers of torch or Python.
#pragma once
#include <cstdint>

enum { KREISS_INTERFACE = 10 };  // counted up with every change below; native.py takes no library with another number

// CMODRELU acts on complex numbers, neighbouring entries (re, im): n is even
enum { KREISS_IDENTITY = 0, KREISS_TANH = 1, KREISS_RELU = 2, KREISS_MODRELU = 3, KREISS_CMODRELU = 4 };

// One pass over `steps` time steps, or one piece of it. Arrays are contiguous, time-major (steps, batch, n).
// Inputs come in one of three ways: already in `states` as u; as vectors x; as symbols, columns of U.
struct kreiss_pass {
  int64_t steps, batch, n;
  int64_t inputs;              // features of x, or number of symbols
  int64_t first_step;          // of this piece in the whole sequence, for `lengths`
  int32_t is_double, nonlinearity, reverse, backward;
  int32_t first_piece;         // whether V and U are still to be packed and sums to be cleared
  int32_t last_piece;          // whether sums are complete after this one
  int32_t wants_carry;         // whether the gradient of h0 is wanted
  int32_t unused;
  const void* matrix;          // V (n, n)
  const void* weight;          // forward: U (n, inputs), with x or symbols
  void* packed;                // room for V, and with U for U behind it: see room of native.py
  void* states;                // forward: out h (in: u, without x and symbols); backward: h
  const void* h0;              // the state before the piece (batch, n), or null for 0; backward: with grad_matrix
  const void* bias;            // forward: (n) or null; added to z, or the threshold of modReLU
  void* stretch;               // |h|/|z| of complex numbers (steps, batch, n/2); forward: out, or null; backward: in
  const int64_t* lengths;      // (batch) or null
  const void* x;               // (steps, batch, inputs) or null
  const int64_t* symbols;      // (steps, batch) or null
  void* last;                  // forward: out, the last state computed (batch, n), or null
  const void* grad;            // backward: gradient of the states (steps, batch, n), or null
  void* inner;                 // backward: out, gradient of u (steps, batch, n)
  void* carry;                 // backward: in and out, gradient of the state after / before the piece (batch, n)
  void* sums;                  // backward: room for (threads, inputs + 1, n), with grad_inputs or grad_bias
  void* grad_inputs;           // backward: out, gradient of U (n, inputs), or null
  void* grad_bias;             // backward: out, gradient of the bias (n), or null
  void* grad_matrix;           // backward: gradient of V (n, n), out with first_piece, then added to; or null
};

// Updates of one step of stacked layers, prepared once. A layer has two passes: pass `i` writes its buffer i and reads the
// other. The inputs of all layers but the lowest are the states of the layer below.
struct kreiss_chain {
  int64_t layers, threads;
  int64_t turn;                // the buffer that the next update writes
  kreiss_pass* passes;         // (layers, 2)
};

// Screening rules of kreiss.memory.screening
enum {
  KREISS_RELEVANCE = 0, KREISS_OLDEST = 1, KREISS_RANDOM = 2, KREISS_SURPRISE = 3, KREISS_LEARNED = 4, KREISS_NOTHING = 5
};

// One pass of a recurrence with memory. The forward pass is over all rows of the batch; a backward pass is over `rows` of
// them from `first_row` on, and its own buffers hold those alone. Keys are numbered: slots of the memory before the pass
// (ρ of the relevant set, then the ring), then steps.
struct kreiss_memory_pass {
  int64_t steps, batch, n;
  int64_t gates;               // rows of V per unit: 4 for an LSTM, else 1
  int64_t short_slots;         // ν, or room for all states
  int64_t relevant;            // ρ
  int64_t past;                // keys before the pass, 0 or ρ + slots of the ring before it
  int64_t first_row, rows;
  double mixing;
  int32_t is_double, nonlinearity, backward, lstm, rule;
  int32_t block;               // rows that a thread of the forward pass takes together
  const void* joint;           // [V; V_a] ((gates + 1)·n, n)
  const void* key;             // U_a (n, n)
  const void* score;           // v (n)
  const void* threshold;       // of modReLU (n), or null
  const void* gate;            // w (n) of a learned rule, or null
  void* packed;
  void* states;                // h (steps, batch, n); forward without gates: in u
  void* gate_values;           // LSTM (steps, batch, 4n); forward: in u, out gates
  void* cells;                 // LSTM: c (steps, batch, n)
  void* macro;                 // s (steps, batch, n)
  void* log_sums;              // log Σ exp(e) (steps, batch)
  int32_t* admitted;           // slot that the screened state of a step took, or −1 (steps, batch)
  const int64_t* lengths;      // (batch) or null
  const int64_t* steps_before; // (batch) or null for 0
  const void* h_before;        // (batch, n), or null for 0
  const void* c_before;        // (batch, n), or null for 0
  const void* query_before;    // forward: (batch, n) or null
  const void* relevant_before; // (batch, relevant, n), with past
  const void* short_before;    // (batch, past − relevant, n), with past
  const int64_t* times_before; // backward: (batch, relevant)
  void* reads;                 // forward, in and out: (batch, ν), or null without screening
  void* surprise;              // forward, in and out: (batch, ν) or null
  void* scores;                // forward, in and out: (batch, relevant)
  int64_t* times;              // forward, in and out: (batch, relevant)
  int64_t* members;            // forward, out: key in every slot of the relevant set, or −1 (batch, relevant)
  void* keys;                  // forward: room (threads, block, ρ + ν, n); backward: U_a m of every key (rows, past + steps, n)
  void* queries;               // backward: in V_a q, out its gradient (rows, steps, n)
  void* grad_states;           // backward: in gradient of h, out of z (LSTM: of h) (rows, past + steps, n)
  void* grad_keys;             // backward: in 0, out gradient of U_a m (rows, past + steps, n)
  void* inner;                 // backward, LSTM: out gradient of the gates' sums (rows, steps, 4n)
  void* grad_scores;           // backward, learned rule: in 0, out gradient of the scores (rows, past + steps), or null
  const void* grad_query_after; // backward: gradient of the query after the pass (batch, n), or null
  void* grad_h;                // backward: in 0, out gradient of h_before (rows, n)
  void* grad_c;                // backward: in gradient of c after the pass, out of c_before (rows, n)
  void* grad_query;            // backward: out gradient of query_before (rows, n)
  void* sums;                  // backward: room (threads, n), out gradient of v in the first
};

// The same of the gated recurrence, with matrices V and W = [W_r; W_g] and input weights [U; S_r; S_g]. Inputs come in
// one of three ways: already in `kept` as u and s; as vectors x; as symbols, columns of [U; S].
struct kreiss_gated_pass {
  int64_t steps, batch, n, inputs, first_step;
  int32_t is_double, nonlinearity, reverse, backward, first_piece, last_piece, wants_carry;
  int32_t unused;
  const void* matrix;          // V (n, n)
  const void* gates;           // W (2n, n)
  const void* weight;          // forward: [U; S] (3n, inputs), with x or symbols
  void* packed;                // room for W, V, and with x or symbols for [U; S], one behind the other
  void* states;                // (steps, batch, n); forward: out h; backward: h
  void* kept;                  // c, r, g, V h (steps, batch, 4n); forward: out (in: u, s, without x and symbols)
  const void* h0;              // (batch, n), the state before the piece, or null for 0
  const void* bias;            // forward: b (n) or null; added to z, or the threshold of modReLU
  const void* gate_bias;       // forward: d (2n) or null
  const int64_t* lengths;      // (batch) or null
  const void* x;               // (steps, batch, inputs) or null
  const int64_t* symbols;      // (steps, batch) or null
  const void* grad;            // backward: gradient of the states (steps, batch, n), or null
  void* inner;                 // backward: out, gradients of u, s and V h (steps, batch, 4n)
  void* carry;                 // backward: in and out, gradient of the state after / before the piece (batch, n)
  void* sums;                  // backward: room for (threads, inputs + 1, 3n), with grad_inputs or grad_bias
  void* grad_inputs;           // backward: out, gradient of [U; S] (3n, inputs), or null
  void* grad_bias;             // backward: out, gradient of [b; d] (3n), or null
};

// Optimisers. A leaf is a tensor that is moved; its moments are, for RMSprop, mean square, momentum buffer and mean
// gradient, for Adam, mean gradient, mean square and the largest mean square; null for what is not kept.
enum { KREISS_RMSPROP = 0, KREISS_ADAM = 1 };
enum { KREISS_CHUNK = 16384 };  // numbers that one thread takes at a time
struct kreiss_leaf {
  void *param, *first, *second, *third;
  const void* grad;
  float* step;                 // steps taken
  int64_t count;
  int32_t is_double, group;
};
struct kreiss_group {
  double lr, decay, eps;
  double first_rate;           // α, or β₁
  double second_rate;          // momentum, or β₂
  int32_t kind, maximize, decoupled, unused;
};
struct kreiss_moves {
  const kreiss_leaf* leaves;
  const kreiss_group* groups;
  int64_t leaf_count;
  double most;                 // norm to which gradients are clipped; 0 for any
  double scale;                // of gradients; set by the library
  double* squares;             // room for one number a chunk
  int32_t wants_norm;          // whether the norm of all gradients is computed
  int32_t updates;             // whether parameters are moved; set to 0 while the norm is computed
};

// Cross-entropy of logits (rows, classes) for targets (rows): the sum or the mean over rows whose target is not `ignored`.
enum { KREISS_CLASSES = 15 };   // most classes: torch is as fast where they fill its vectors
enum { KREISS_ROWS = 256 };     // rows that one thread takes at a time, a multiple of every vector's lanes
struct kreiss_entropy {
  int64_t rows, classes, ignored;
  int32_t is_double, mean;
  const void* logits;
  const int64_t* targets;
  void* loss;                  // out, one number
  void* grad;                  // out, gradient of the logits (rows, classes), or null
  double weight;               // of a row; set by the library
  double* sums;                // of every chunk of rows; set by the library
};

// Orthogonal matrices at their base point B, and the Schur map V = P(Λ + T)Pᵀ there, where P = B.
enum { KREISS_SCHUR = 0, KREISS_SCHUR_BACK = 1, KREISS_TURN = 2, KREISS_TURN_BACK = 3, KREISS_REBASE = 4 };
enum {  // phases of these; each thread does some of the panels of columns
  KREISS_CORE, KREISS_CONJUGATE,                                              // Schur map
  KREISS_FROM_RIGHT, KREISS_FROM_LEFT, KREISS_COMMUTATOR, KREISS_TURNED, KREISS_SKEW,  // gradients
  KREISS_HALF, KREISS_SQUARE, KREISS_SERIES, KREISS_MOVE, KREISS_PROBE_ROWS, KREISS_PROBE_COLUMNS, KREISS_GRAM,
  KREISS_POLISH, KREISS_KEEP                                                  // moving the base point
};
enum { KREISS_MOST_PAIRS = 4 };  // of powers of A/2 in the series by which the base is moved
struct kreiss_base_pass {
  int64_t n;
  int64_t pairs, positive;     // 2×2 blocks of Λ, and how many of the others are +γ
  double fixed_radius;         // γ, without `radius`
  int32_t is_double, job;
  int32_t printed;             // whether T has entries inside the blocks, as printed in the paper
  int32_t project;             // rebase: whether the new base point is corrected for rounding
  void* base;                  // B (n, n); rebase: in and out
  void* free;                  // packed A; rebase: in, and out 0
  const void *radius, *angle, *shear, *coupling;  // parameters of Λ and T; null for those that are not free
  void* core;                  // Λ + T (n, n); Schur map: out, its gradient: in
  void* matrix;                // out: V or P (n, n)
  const void* grad;            // gradient of V or P (n, n)
  void* grad_free;             // out: gradient of A, packed; may be null for the Schur map
  void *grad_radius, *grad_angle, *grad_shear, *grad_coupling;
  void* room;                  // numbers as kreiss_base_room says
  int64_t threads;             // the rest is set by the library
  int32_t phase, pair;         // pairs of powers of A/2 that have been summed
  double *sums, *probed;
  const double* probe;
};

// out (rows, columns) = A·B, or with `add` added to it. Strides count numbers; out is contiguous.
enum { KREISS_BLOCK = 24576 };  // bytes of a packed panel of B
constexpr int64_t kreiss_strip(int vector_bytes) { return vector_bytes == 64 ? 8 : 6; }  // rows whose sums fit registers
struct kreiss_product {
  int64_t rows, columns, depth;
  int64_t a_row, a_k, b_k, b_column;
  int32_t is_double, add;
  const void *a, *b;
  void* out;
  void* room;                  // the rest is set by the library
  int64_t room_bytes;          // of a thread
};

// One recurrence compiled for one instruction set. A pass is a struct of its own, such as kreiss_pass.
struct kreiss_recurrence {
  void (*run_rows)(const void* pass, int64_t first, int64_t rows, int64_t thread);
  void (*prepare)(const void* pass);
  void (*gather)(const void* pass, int64_t threads);
};
#define KREISS_PASTE(isa, name) isa##_##name
#define KREISS_NAMED(isa, name) KREISS_PASTE(isa, name)  // KREISS_NAMED(KREISS_ISA, plain) is kreiss_avx2_plain
