// Recurrences that attend to their own past, forward and backward, for one instruction set.
//
//   e_i = vᵀ tanh(V_a q + U_a m_i), α = softmax(e), s = m (h_{t−1} + Σ α_i m_i), h_t from (u_t, s); q is s of the step before
//
// The memory is a relevant set of ρ slots and a ring of ν slots; attention over all states is a ring that never comes
// round. Every state is a key with a number: first the slots of the memory before the pass, then its steps. U_a m_i is
// computed once, when a state is stored. The backward pass recomputes tanh and α from the logarithm of the softmax's sum
// instead of keeping them, and undoes the screening step by step.
//
// tanh(a + b) = 1 − 2/(e^2a e^2b + 1): e^2b is computed when a key is stored and e^2a once a step, so that a read costs a
// product and a quotient. Where a or b is so large that e^2x or its inverse is no number, the key keeps b itself and tanh
// is computed as such.

#include <cmath>

#include "products.h"

namespace {

typedef kreiss_memory_pass Pass;

template <class T> inline T dot(const T* a, const T* b, int64_t n) {
  typedef typename Lanes<T>::V V;
  V sum = {};
  each_vector<T>(n, KREISS_BODY { sum += get<T>(a + j, left) * get<T>(b + j, left); });
  return total<T>(sum);
}

template <class T> constexpr T kLargest = (T)(sizeof(T) == 4 ? 40 : 350);        // e^2x and e^−2x are normal numbers
template <class T> constexpr T kMost = (T)(sizeof(T) == 4 ? 0x1p60 : 0x1p500);  // its square is a number, its inverse 0 beside 1

// to = e^2x and 1, or x and 0 where an entry is too large or no number
template <class T> inline bool raise(const T* x, T* to, int64_t n) {
  typedef typename Lanes<T>::V V;
  V within = splat<T>((T)1);
  const V zero = {}, one = splat<T>((T)1);
  each_vector<T>(n, KREISS_BODY {
    const V v = get<T>(x + j, left);
    within = (v < zero ? -v : v) <= kLargest<T> ? within : zero;  // false for a NaN
  });
  if (total<T>(within == one ? one : zero) < kWidth<T>) {
    if (to != x) std::memcpy(to, x, (size_t)n * sizeof(T));
    return false;
  }
  each_vector<T>(n, KREISS_BODY { put<T>(to + j, exp_inline<T>(get<T>(x + j, left) * (T)2), left); });
  return true;
}

// A query or a key: e^2x if `raised`, else x
template <class T> struct Side {
  const T* x;
  bool raised;
  KREISS_INLINE typename Lanes<T>::V sum_part(int64_t j, int64_t left) const {
    const typename Lanes<T>::V v = get<T>(x + j, left);
    if (!raised) return v;
    typename Lanes<T>::V half;
    for (int i = 0; i < kWidth<T>; ++i) half[i] = v[i] > 0 ? (T)0.5 * std::log(v[i]) : 0;  // 0 behind the end
    return half;
  }
};

// (1 − tanh(a + b))/2 of one vector, in any case
template <class T> KREISS_INLINE typename Lanes<T>::V lower(const Side<T>& a, const Side<T>& b, int64_t j, int64_t left) {
  const T half = (T)0.5;
  if (a.raised && b.raised) return (T)1 / (get<T>(a.x + j, left) * get<T>(b.x + j, left) + (T)1);
  return half - half * tanh_inline<T>(a.sum_part(j, left) + b.sum_part(j, left));
}

template <class T> KREISS_INLINE typename Lanes<T>::V at_most(typename Lanes<T>::V v) {
  const typename Lanes<T>::V most = splat<T>(kMost<T>);
  return most < v ? most : v;  // a NaN stays a NaN
}

// body(j, count, (1 − tanh(a + b))/2) for every vector: 1/(e^2a e^2b + 1), with one quotient for two vectors
template <class T, class Body> KREISS_INLINE void each_lower(const Side<T>& a, const Side<T>& b, int64_t n, const Body& body) {
  typedef typename Lanes<T>::V V;
  const int64_t width = kWidth<T>;
  int64_t j = 0;
  if (a.raised && b.raised)
    for (; j + 2 * width <= n; j += 2 * width) {
      const V d = at_most<T>(load<T>(a.x + j) * load<T>(b.x + j) + (T)1);
      const V e = at_most<T>(load<T>(a.x + j + width) * load<T>(b.x + j + width) + (T)1);
      const V r = (T)1 / (d * e);
      body(j, width, r * e);
      body(j + width, width, r * d);
    }
  for (; j < n; j += width) body(j, n - j, lower<T>(a, b, j, n - j));
}
#define KREISS_LOWER_BODY [&](int64_t j, int64_t left, const V& low) __attribute__((always_inline))

// How many steps a row has, how many it had before the pass, and what its memory was
template <class T> struct Row {
  const Pass& p;
  int64_t row;  // in the batch

  int64_t length() const { return p.lengths ? (p.lengths[row] < p.steps ? p.lengths[row] : p.steps) : p.steps; }
  int64_t before() const { return p.steps_before ? p.steps_before[row] : 0; }
  int64_t ring() const { return p.past - p.relevant; }  // slots of the ring that may hold states before the pass

  // h of a key
  const T* state(int64_t key) const {
    if (key >= p.past) return (const T*)p.states + ((key - p.past) * p.batch + row) * p.n;
    if (key < p.relevant) return (const T*)p.relevant_before + (row * p.relevant + key) * p.n;
    return (const T*)p.short_before + (row * ring() + key - p.relevant) * p.n;
  }
  // The key of the state made at this step since the start of the sequence
  int64_t key_of(int64_t step) const {
    return step >= before() ? p.past + step - before() : p.relevant + step % p.short_slots;
  }
};

// ------------------------------------------------------------------------------------------------ forward

template <class T> struct Reader {
  const Pass& p;
  Row<T> at;
  T* keys;                       // U_a of every slot (ρ + ν, n), raised where it can be
  std::vector<char> raised;      // of every slot
  std::vector<T> room;           // for a raised query
  T total_score;                 // Σ v
  std::vector<const T*> states;  // h of every slot
  std::vector<int64_t> numbers;  // key of every slot of the relevant set, −1 where there is none
  std::vector<T> logits;
  int64_t count, members;        // steps so far; states in the relevant set

  Reader(const Pass& p, int64_t row, T* keys, const T* packed_key)
      : p(p), at{p, row}, keys(keys), states((size_t)(p.relevant + p.short_slots)), numbers((size_t)p.relevant, -1),
        logits(states.size()), count(at.before()), members(0) {
    raised.resize(states.size()), room.resize((size_t)p.n);
    total_score = 0;
    for (int64_t j = 0; j < p.n; ++j) total_score += ((const T*)p.score)[j];
    for (int64_t k = 0; k < p.relevant && p.past; ++k)
      if (p.times[row * p.relevant + k] >= 0) put_in(k, k, packed_key), numbers[(size_t)k] = k, members = k + 1;
    for (int64_t i = count < p.short_slots ? 0 : count - p.short_slots; i < count; ++i)
      put_in(p.relevant + i % p.short_slots, at.key_of(i), packed_key);
  }

  void put_in(int64_t slot, int64_t key, const T* packed_key) {
    states[(size_t)slot] = at.state(key);
    multiply_rows<T>(at.state(key), p.n, 1, packed_key, p.n, room.data(), p.n, p.n, false);
    raised[(size_t)slot] = raise<T>(room.data(), keys + slot * p.n, p.n);
  }

  int64_t filled() const { return count < p.short_slots ? count : p.short_slots; }  // slots of the ring

  // e = Σ v tanh = Σ v − 2 Σ v (1 − tanh)/2
  void score(const Side<T>& query, int64_t first, int64_t end) {
    typedef typename Lanes<T>::V V;
    const T* v = (const T*)p.score;
    for (int64_t slot = first; slot < end; ++slot) {
      const Side<T> key = {keys + slot * p.n, (bool)raised[(size_t)slot]};
      V sum = {};
      each_lower<T>(query, key, p.n, KREISS_LOWER_BODY { sum += get<T>(v + j, left) * low; });
      logits[(size_t)slot] = total_score - 2 * total<T>(sum);
    }
  }

  // logits → exp(e − top), and their sum
  T normalise(int64_t first, int64_t end, T top) {
    T sum = 0;
    for (int64_t slot = first; slot < end; ++slot) sum += logits[(size_t)slot] = std::exp(logits[(size_t)slot] - top);
    return sum;
  }

  T highest(int64_t first, int64_t end, T top) const {
    for (int64_t slot = first; slot < end; ++slot) top = logits[(size_t)slot] > top ? logits[(size_t)slot] : top;
    return top;
  }

  // to += scale · Σ α m, four vectors at a time, whose sums stay in registers
  void add_read(int64_t first, int64_t end, T scale, T* to) const {
    typedef typename Lanes<T>::V V;
    const int64_t n = p.n, width = kWidth<T>;
    int64_t j = 0;
    for (; j + 4 * width <= n; j += 4 * width) {
      V sum[4] = {};
      for (int64_t slot = first; slot < end; ++slot) {
        const T alpha = logits[(size_t)slot], *h = states[(size_t)slot] + j;
        if (alpha == 0) continue;
        for (int i = 0; i < 4; ++i) sum[i] += alpha * load<T>(h + i * width);
      }
      for (int i = 0; i < 4; ++i) store<T>(to + j + i * width, load<T>(to + j + i * width) + scale * sum[i]);
    }
    for (; j < n; j += width) {
      V sum = {};
      for (int64_t slot = first; slot < end; ++slot)
        if (logits[(size_t)slot] != 0) sum += logits[(size_t)slot] * get<T>(states[(size_t)slot] + j, n - j);
      put<T>(to + j, get<T>(to + j, n - j) + scale * sum, n - j);
    }
  }

  // s = m (h + Σ α m); adds α to the reads of the ring; returns log Σ exp(e)
  T read(const T* projected, const T* h, T* s) {
    const int64_t ring = p.relevant, end = ring + filled();
    const bool can_raise = raise<T>(projected, room.data(), p.n);
    const Side<T> query = {room.data(), can_raise};
    score(query, 0, members), score(query, ring, end);
    const T top = highest(ring, end, highest(0, members, -HUGE_VAL));
    const T sum = normalise(0, members, top) + normalise(ring, end, top), m = (T)p.mixing;
    for (int64_t j = 0; j < p.n; ++j) s[j] = m * h[j];
    add_read(0, members, m / sum, s), add_read(ring, end, m / sum, s);
    if (p.reads) {
      T* reads = (T*)p.reads + at.row * p.short_slots;
      for (int64_t slot = ring; slot < end; ++slot) reads[slot - ring] += logits[(size_t)slot] / sum;
    }
    return top + std::log(sum);
  }

  // The score of the state in the slot that is used next, by the rule
  T judged(int64_t place, const T* h) const {
    const int64_t step = count - p.short_slots;
    if (p.rule == KREISS_RELEVANCE) return ((const T*)p.reads)[at.row * p.short_slots + place];
    if (p.rule == KREISS_SURPRISE) return ((const T*)p.surprise)[at.row * p.short_slots + place];
    if (p.rule == KREISS_LEARNED) return dot<T>((const T*)p.gate, h, p.n);
    if (p.rule == KREISS_OLDEST) return -(T)step;
    if (p.rule == KREISS_NOTHING) return (T)-HUGE_VAL;
    uint32_t x = (uint32_t)step * 0x9E3779B1u + (uint32_t)at.row * 0x85EBCA77u;  // kreiss.memory.screening.Random
    x = (x ^ (x >> 16)) * 0x7FEB352Du;
    x = (x ^ (x >> 15)) * 0x046CA68Bu;
    return (T)((x ^ (x >> 16)) >> 8) * (T)(1.0 / 16777216.0);
  }

  // The oldest state of a full ring enters the relevant set or not; returns its slot there, or −1
  int32_t screen() {
    if (count < p.short_slots || !p.relevant) return -1;
    const int64_t place = count % p.short_slots, from = p.relevant + place;
    const T score = judged(place, states[(size_t)from]);
    if (score == (T)-HUGE_VAL) return -1;
    T* scores = (T*)p.scores + at.row * p.relevant;
    int64_t slot = members;
    if (members == p.relevant) {
      slot = 0;  // the first of the lowest; a NaN counts as the lowest, as in torch
      for (int64_t k = 1; k < p.relevant; ++k)
        if (scores[slot] == scores[slot] && !(scores[k] >= scores[slot])) slot = k;
      if (!(score > scores[slot])) return -1;
    } else {
      ++members;
    }
    scores[slot] = score;
    p.times[at.row * p.relevant + slot] = count - p.short_slots;
    numbers[(size_t)slot] = at.key_of(count - p.short_slots);
    states[(size_t)slot] = states[(size_t)from];
    std::memcpy(keys + slot * p.n, keys + from * p.n, (size_t)p.n * sizeof(T));
    raised[(size_t)slot] = raised[(size_t)from];
    return (int32_t)slot;
  }

  // h, of which U_a h is given, takes the place of the oldest state of the ring
  void push(const T* h, const T* key, T surprise) {
    const int64_t place = count % p.short_slots, slot = p.relevant + place;
    states[(size_t)slot] = h;
    raised[(size_t)slot] = raise<T>(key, keys + slot * p.n, p.n);
    if (p.reads) ((T*)p.reads)[at.row * p.short_slots + place] = 0;
    if (p.surprise) ((T*)p.surprise)[at.row * p.short_slots + place] = surprise;
    ++count;
  }
};

// ‖h − expected‖², where expected = s/(2m), or s in the first step
template <class T> inline T surprise_of(const T* h, const T* s, T scale, int64_t n) {
  T sum = 0;
  for (int64_t j = 0; j < n; ++j) sum += (h[j] - scale * s[j]) * (h[j] - scale * s[j]);
  return sum;
}

// h, and c of an LSTM, of one row from V s and u; leaves u where the query of the second step needs it
template <class T> inline void cell(const Pass& p, const T* product, T* u, const T* c_before, T* c, T* h) {
  typedef typename Lanes<T>::V V;
  const int64_t n = p.n;
  for (int64_t j = 0; j < n; j += kWidth<T>) {
    const int64_t left = n - j;
    if (!p.lstm) {
      const V z = get<T>(u + j, left) + get<T>(product + j, left);
      put<T>(h + j, apply<T>(p.nonlinearity, z, p.threshold ? get<T>((const T*)p.threshold + j, left) : V{}), left);
      continue;
    }
    V gate[4];
    for (int64_t k = 0; k < 4; ++k) {
      const V z = get<T>(u + k * n + j, left) + get<T>(product + k * n + j, left);
      gate[k] = k == 2 ? tanh_of<T>(z) : sigmoid_of<T>(z);
      put<T>(u + k * n + j, gate[k], left);  // the backward pass needs the gates
    }
    const V now = gate[1] * get<T>(c_before + j, left) + gate[0] * gate[2];
    put<T>(c + j, now, left);
    put<T>(h + j, gate[3] * tanh_inline<T>(now), left);
  }
}

// V_a q of one row, by way of [V; V_a] q: rare
template <class T> void project(const T* query, const T* packed, const Pass& p, T* room, T* to) {
  const int64_t n = p.n, wide = (p.gates + 1) * n;
  multiply_rows<T>(query, n, 1, packed, n, room, wide, wide, false);
  std::memcpy(to, room + p.gates * n, (size_t)n * sizeof(T));
}

template <class T> void forward_block(const Pass& p, int64_t first, int64_t rows, T* keys) {
  const int64_t n = p.n, wide = (p.gates + 1) * n, slots = p.relevant + p.short_slots;
  const T *packed = (const T*)p.packed, *packed_key = packed + packed_size<T>(n, wide);
  std::vector<T> products((size_t)(rows * wide)), key((size_t)(rows * n)), zero((size_t)n, (T)0), z((size_t)wide);
  std::vector<Reader<T>> readers;
  std::vector<const T*> h((size_t)rows), c((size_t)rows), query((size_t)rows);
  std::vector<T> first_queries((size_t)(rows * n));
  readers.reserve((size_t)rows);
  for (int64_t r = 0; r < rows; ++r) {
    readers.emplace_back(p, first + r, keys + r * slots * n, packed_key);
    h[(size_t)r] = p.h_before ? (const T*)p.h_before + (first + r) * n : zero.data();
    c[(size_t)r] = p.c_before ? (const T*)p.c_before + (first + r) * n : zero.data();
    if (p.query_before)  // V_a q of the first step
      project<T>((const T*)p.query_before + (first + r) * n, packed, p, z.data(), first_queries.data() + r * n);
    query[(size_t)r] = first_queries.data() + r * n;
  }
  for (int64_t t = 0; t < p.steps; ++t) {
    const int64_t at = t * p.batch + first;
    T *s = (T*)p.macro + at * n, *states = (T*)p.states + at * n, *cells = p.lstm ? (T*)p.cells + at * n : nullptr;
    T* u = p.lstm ? (T*)p.gate_values + at * 4 * n : states;
    for (int64_t r = 0; r < rows; ++r) {
      Reader<T>& reader = readers[(size_t)r];
      if (t >= reader.at.length() || !reader.count)
        std::memcpy(s + r * n, h[(size_t)r], (size_t)n * sizeof(T));
      else
        ((T*)p.log_sums)[at + r] = reader.read(query[(size_t)r], h[(size_t)r], s + r * n);
    }
    multiply_rows<T>(s, n, rows, packed, n, products.data(), wide, wide, false);
    for (int64_t r = 0; r < rows; ++r) {
      Reader<T>& reader = readers[(size_t)r];
      T *product = products.data() + r * wide, *now = states + r * n;
      p.admitted[at + r] = -1;
      if (t >= reader.at.length()) {
        if (p.lstm) std::memcpy(cells + r * n, c[(size_t)r], (size_t)n * sizeof(T));
        std::memcpy(now, h[(size_t)r], (size_t)n * sizeof(T));
        continue;
      }
      std::memcpy(first_queries.data() + r * n, product + p.gates * n, (size_t)n * sizeof(T));
      cell<T>(p, product, u + r * p.gates * n, c[(size_t)r], cells + r * n, now);
      h[(size_t)r] = now;
      if (p.lstm) c[(size_t)r] = cells + r * n;
      p.admitted[at + r] = reader.screen();
    }
    multiply_rows<T>(states, n, rows, packed_key, n, key.data(), n, n, false);
    for (int64_t r = 0; r < rows; ++r) {
      Reader<T>& reader = readers[(size_t)r];
      if (t >= reader.at.length()) continue;
      const T scale = reader.count ? (T)(0.5 / p.mixing) : (T)1;
      reader.push(states + r * n, key.data() + r * n, p.surprise ? surprise_of<T>(states + r * n, s + r * n, scale, n) : 0);
    }
  }
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t k = 0; k < p.relevant; ++k) p.members[(first + r) * p.relevant + k] = readers[(size_t)r].numbers[(size_t)k];
}

// ------------------------------------------------------------------------------------------------ backward

// One row of the backward pass. Buffers of the pass hold the rows of a call one behind the other, because threads would
// otherwise fetch lines that another one writes.
template <class T> struct Undo {
  const Pass& p;
  Row<T> at;
  int64_t r;                      // among the rows of the call
  std::vector<int64_t> occupant;  // key in every slot of the relevant set, −1 where there is none
  std::vector<int64_t> replaced;  // of every step: who had to leave, −1 where there was room
  std::vector<T> lows;            // (1 − tanh)/2 of one key
  std::vector<char> raised;       // of every key
  T total_score;                  // Σ v

  Undo(const Pass& p, int64_t r)
      : p(p), at{p, p.first_row + r}, r(r), occupant((size_t)p.relevant, -1), replaced((size_t)p.steps, -1),
        lows((size_t)p.n + 2 * kWidth<T>), raised((size_t)(p.past + p.steps)), total_score(0) {
    for (int64_t j = 0; j < p.n; ++j) total_score += ((const T*)p.score)[j];
    for (int64_t key = 0; key < p.past + p.steps; ++key)
      raised[(size_t)key] = raise<T>(of(p.keys, key), of(p.keys, key), p.n);
    for (int64_t k = 0; k < p.relevant && p.past; ++k)
      if (p.times_before[at.row * p.relevant + k] >= 0) occupant[(size_t)k] = k;
    for (int64_t t = 0; t < at.length(); ++t)
      if (int32_t slot = admitted(t); slot >= 0) {
        replaced[(size_t)t] = occupant[(size_t)slot];
        occupant[(size_t)slot] = at.key_of(at.before() + t - p.short_slots);
      }
  }

  int32_t admitted(int64_t t) const { return p.admitted[t * p.batch + at.row]; }
  T* of(void* buffer, int64_t key) const { return (T*)buffer + (r * (p.past + p.steps) + key) * p.n; }
  T* query(int64_t t) const { return (T*)p.queries + (r * p.steps + t) * p.n; }
  T* gates(int64_t t) const { return (T*)p.inner + (r * p.steps + t) * 4 * p.n; }
  const T* previous(int64_t t) const {  // h_{t−1}, or null for 0
    return t ? at.state(p.past + t - 1) : p.h_before ? (const T*)p.h_before + at.row * p.n : nullptr;
  }

  // One key: what reaches V_a q (da), U_a m (dK), m (dm), v (dv) from the gradient g of Σ α m
  void through_key(int64_t key, const Side<T>& query, T log_sum, const T* g, T along, T* da, T* dv, bool screened) {
    typedef typename Lanes<T>::V V;
    const int64_t n = p.n;
    const Side<T> stored = {of(p.keys, key), (bool)raised[(size_t)key]};
    const T *h = at.state(key), *v = (const T*)p.score;
    V logit = {}, product = {};
    T* kept = lows.data();
    each_lower<T>(query, stored, n, KREISS_LOWER_BODY {
      store<T>(kept + j, low);
      logit += get<T>(v + j, left) * low;
      product += get<T>(g + j, left) * get<T>(h + j, left);
    });
    const T alpha = std::exp(total_score - 2 * total<T>(logit) - log_sum), de = alpha * (total<T>(product) - along);
    if (alpha == 0 && de == 0) return;
    T *dk = of(p.grad_keys, key), *dm = of(p.grad_states, key);
    each_vector<T>(n, KREISS_BODY {
      const V w = load<T>(kept + j);  // tanh = 1 − 2w, its slope 4w(1 − w)
      const V inner = (4 * de) * get<T>(v + j, left) * (w * ((T)1 - w));
      put<T>(da + j, get<T>(da + j, left) + inner, left);
      put<T>(dk + j, get<T>(dk + j, left) + inner, left);
      put<T>(dm + j, get<T>(dm + j, left) + alpha * get<T>(g + j, left), left);
      put<T>(dv + j, get<T>(dv + j, left) + de * ((T)1 - (T)2 * w), left);
    });
    if (screened && p.grad_scores) ((T*)p.grad_scores)[r * (p.past + p.steps) + key] += de;
  }

  // Through s_t = m (h_{t−1} + Σ α m), from ds; da_t takes the place of V_a q
  void through_read(int64_t t, const T* ds, T* dh, T* projected, T* scratch, T* dv) {
    const int64_t n = p.n, now = at.before() + t, from = now < p.short_slots ? 0 : now - p.short_slots;
    T *g = scratch, *da = scratch + n, along = 0;
    const T *s = (const T*)p.macro + (t * p.batch + at.row) * n, *h = previous(t), m = (T)p.mixing;
    for (int64_t j = 0; j < n; ++j) {
      g[j] = m * ds[j], da[j] = 0;
      dh[j] += g[j];
      along += g[j] * (s[j] / m - (h ? h[j] : 0));
    }
    const T log_sum = ((const T*)p.log_sums)[t * p.batch + at.row];
    const bool can_raise = raise<T>(projected, projected, n);
    const Side<T> query = {projected, can_raise};
    for (int64_t k = 0; k < p.relevant; ++k)
      if (occupant[(size_t)k] >= 0) through_key(occupant[(size_t)k], query, log_sum, g, along, da, dv, true);
    for (int64_t step = from; step < now; ++step) through_key(at.key_of(step), query, log_sum, g, along, da, dv, false);
    std::memcpy(projected, da, (size_t)n * sizeof(T));
  }

  void undo_screening(int64_t t) {
    if (int32_t slot = admitted(t); slot >= 0) occupant[(size_t)slot] = replaced[(size_t)t];
  }
};

// dz of one step, from dh in place (an LSTM: the gradients of its gates' sums to `inner`; dc is carried)
template <class T> inline void through_cell(const Pass& p, int64_t t, int64_t row, T* dh, T* inner, T* dc) {
  typedef typename Lanes<T>::V V;
  const int64_t n = p.n, at = t * p.batch + row;
  for (int64_t j = 0; j < n; j += kWidth<T>) {
    const int64_t left = n - j;
    const V back = get<T>(dh + j, left);
    if (!p.lstm) {
      put<T>(dh + j, through<T>(p.nonlinearity, back, get<T>((const T*)p.states + at * n + j, left)), left);
      continue;
    }
    V gate[4];
    for (int64_t k = 0; k < 4; ++k) gate[k] = get<T>((const T*)p.gate_values + (at * 4 + k) * n + j, left);
    const T* before = t ? (const T*)p.cells + (at - p.batch) * n : p.c_before ? (const T*)p.c_before + row * n : nullptr;
    const V c = get<T>((const T*)p.cells + at * n + j, left), tanh_c = tanh_inline<T>(c);
    const V c_before = before ? get<T>(before + j, left) : V{};
    const V to_c = get<T>(dc + j, left) + back * gate[3] * ((T)1 - tanh_c * tanh_c);
    put<T>(inner + j, to_c * gate[2] * gate[0] * ((T)1 - gate[0]), left);
    put<T>(inner + n + j, to_c * c_before * gate[1] * ((T)1 - gate[1]), left);
    put<T>(inner + 2 * n + j, to_c * gate[0] * ((T)1 - gate[2] * gate[2]), left);
    put<T>(inner + 3 * n + j, back * tanh_c * gate[3] * ((T)1 - gate[3]), left);
    put<T>(dc + j, to_c * gate[1], left);
  }
}

template <class T> inline void add(T* to, const T* from, int64_t n) { add_scaled<T>(to, (T)1, from, n); }

// Gradients of outputs behind the end of a row, which repeat the last state
template <class T> void fold_padding(const Undo<T>& row, T* dh_before) {
  const Pass& p = row.p;
  const int64_t length = row.at.length();
  for (int64_t t = length; t < p.steps; ++t) {
    T* padding = row.of(p.grad_states, p.past + t);
    add<T>(length ? row.of(p.grad_states, p.past + length - 1) : dh_before, padding, p.n);
    std::memset(padding, 0, (size_t)p.n * sizeof(T));
    std::memset(row.query(t), 0, (size_t)p.n * sizeof(T));
    if (p.lstm) std::memset(row.gates(t), 0, (size_t)(4 * p.n) * sizeof(T));
  }
}

// What reaches V s and V_a s of a row at step t, into `in`: through the cell, and from the query of the next step
template <class T> void enter_step(Undo<T>& row, int64_t t, T* dc, T* in) {
  const Pass& p = row.p;
  const int64_t n = p.n, length = row.at.length(), key = p.past + t;
  if (t >= length) {
    std::memset(in, 0, (size_t)((p.gates + 1) * n) * sizeof(T));
    return;
  }
  T *dh = row.of(p.grad_states, key), *inner = p.lstm ? row.gates(t) : dh, *next = in + p.gates * n;
  through_cell<T>(p, t, row.at.row, dh, inner, dc);
  std::memcpy(in, inner, (size_t)(p.gates * n) * sizeof(T));
  if (t + 1 < length)
    std::memcpy(next, row.query(t + 1), (size_t)n * sizeof(T));
  else
    std::memset(next, 0, (size_t)n * sizeof(T));
}

// From s of a row at step t on: to h_{t−1} and, where it attended, to everything it read
template <class T> void leave_step(Undo<T>& row, int64_t t, T* ds, T* dh_before, T* scratch, T* dv) {
  const Pass& p = row.p;
  const int64_t n = p.n, length = row.at.length();
  if (t >= length) return;
  T* to_h = t ? row.of(p.grad_states, p.past + t - 1) : dh_before;
  if (p.grad_query_after && t + 1 == length) add<T>(ds, (const T*)p.grad_query_after + row.at.row * n, n);
  row.undo_screening(t);
  if (row.at.before() + t) return row.through_read(t, ds, to_h, row.query(t), scratch, dv);
  add<T>(to_h, ds, n);
  std::memset(row.query(t), 0, (size_t)n * sizeof(T));
}

template <class T> void backward_rows(const Pass& p, int64_t first, int64_t rows, int64_t thread) {
  const int64_t n = p.n, wide = (p.gates + 1) * n, stride = (p.past + p.steps) * n;
  const T *packed = (const T*)p.packed, *packed_key = packed + packed_size<T>(wide, n);
  T *dv = (T*)p.sums + thread * n, *dh_before = (T*)p.grad_h + first * n, *dc = (T*)p.grad_c + first * n;
  std::memset(dv, 0, (size_t)n * sizeof(T));
  std::vector<T> joint((size_t)(rows * wide)), ds((size_t)(rows * n)), scratch((size_t)(2 * n));
  std::vector<Undo<T>> undos;
  undos.reserve((size_t)rows);
  for (int64_t r = 0; r < rows; ++r) {
    undos.emplace_back(p, first + r);
    fold_padding<T>(undos.back(), dh_before + r * n);
  }
  for (int64_t t = p.steps - 1; t >= 0; --t) {
    const int64_t key = p.past + t;
    if (t + 1 < p.steps)
      multiply_rows<T>(undos[0].of(p.grad_keys, key), stride, rows, packed_key, n, undos[0].of(p.grad_states, key), stride,
                       n, true);
    for (int64_t r = 0; r < rows; ++r) enter_step<T>(undos[(size_t)r], t, dc + r * n, joint.data() + r * wide);
    multiply_rows<T>(joint.data(), wide, rows, packed, wide, ds.data(), n, n, false);
    for (int64_t r = 0; r < rows; ++r)
      leave_step<T>(undos[(size_t)r], t, ds.data() + r * n, dh_before + r * n, scratch.data(), dv);
  }
  for (int64_t r = 0; r < rows; ++r) {  // V_a q of the first step, where it attended
    std::memset(joint.data(), 0, (size_t)(p.gates * n) * sizeof(T));
    std::memcpy(joint.data() + p.gates * n, undos[(size_t)r].query(0), (size_t)n * sizeof(T));
    multiply_rows<T>(joint.data(), wide, 1, packed, wide, (T*)p.grad_query + (first + r) * n, n, n, false);
  }
}

// ------------------------------------------------------------------------------------------------ entry points

template <class T> void prepare_as(const Pass& p) {
  const int64_t n = p.n, wide = (p.gates + 1) * n;
  T* out = (T*)p.packed;
  if (p.backward) {
    pack<T>((const T*)p.joint, wide, n, n, 1, out);
    pack<T>((const T*)p.key, n, n, n, 1, out + packed_size<T>(wide, n));
  } else {
    pack<T>((const T*)p.joint, n, wide, 1, n, out);
    pack<T>((const T*)p.key, n, n, 1, n, out + packed_size<T>(n, wide));
  }
}

template <class T> void rows_of(const Pass& p, int64_t first, int64_t rows, int64_t thread) {
  FlushDenormals flush;
  (void)flush;
  if (p.backward) return backward_rows<T>(p, first, rows, thread);
  T* keys = (T*)p.keys + thread * p.block * (p.relevant + p.short_slots) * p.n;
  for (int64_t r = 0; r < rows; r += p.block) forward_block<T>(p, first + r, rows - r < p.block ? rows - r : p.block, keys);
}

void run_rows(const void* pass, int64_t first, int64_t rows, int64_t thread) {
  const Pass& p = *(const Pass*)pass;
  p.is_double ? rows_of<double>(p, first, rows, thread) : rows_of<float>(p, first, rows, thread);
}

void prepare(const void* pass) {
  const Pass& p = *(const Pass*)pass;
  p.is_double ? prepare_as<double>(p) : prepare_as<float>(p);
}

// After a backward pass: the sums of all threads, in their order
void gather(const void* pass, int64_t threads) {
  const Pass& p = *(const Pass*)pass;
  for (int64_t thread = 1; thread < threads; ++thread)
    if (p.is_double)
      add<double>((double*)p.sums, (const double*)p.sums + thread * p.n, p.n);
    else
      add<float>((float*)p.sums, (const float*)p.sums + thread * p.n, p.n);
}

}  // namespace

extern "C" const kreiss_recurrence KREISS_NAMED(KREISS_ISA, memory);
extern "C" const kreiss_recurrence KREISS_NAMED(KREISS_ISA, memory) = {run_rows, prepare, gather};
