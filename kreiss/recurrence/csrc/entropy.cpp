// Cross-entropy of logits for classes, with the gradient of the logits in the same pass, for one instruction set.
//
// A vector holds one class of as many rows: maximum, sum and quotient of a softmax then need no sums across lanes, and few
// classes fill it as well as many. Rows are cut into chunks of a fixed size, so that the sum does not depend on threads.

#include <cmath>

#include "vectors.h"

namespace {

typedef kreiss_entropy Job;

// e^x for x ≤ 0, 0 where it is below the normal numbers; NaN stays NaN
template <class T> KREISS_INLINE typename Lanes<T>::V decayed(typename Lanes<T>::V x) {
  const typename Lanes<T>::V far = splat<T>(-kFar<T>), zero = {};
  return x < far ? zero : exp_inline<T>(x < far ? far : x);
}

template <class T> struct Block {
  typedef typename Lanes<T>::V V;
  const Job& job;
  const int64_t first, rows;  // at most as many rows as there are lanes
  T* room;                    // (classes, lanes)

  const T* logits(int64_t row) const { return (const T*)job.logits + (first + row) * job.classes; }
  T* grad(int64_t row) const { return (T*)job.grad + (first + row) * job.classes; }

  void read() const {
    for (int64_t c = 0; c < job.classes; ++c) store<T>(room + c * kWidth<T>, V{});
    for (int64_t r = 0; r < rows; ++r) {
      const T* from = logits(r);
      for (int64_t c = 0; c < job.classes; ++c) room[c * kWidth<T> + r] = from[c];
    }
  }

  // The gradient of a row is weight·(softmax − target); a row without target has weight 0, so that NaN stays NaN
  void write(V factor, const int64_t* targets) const {
    for (int64_t c = 0; c < job.classes; ++c) {
      T* at = room + c * kWidth<T>;
      store<T>(at, load<T>(at) * factor);
    }
    for (int64_t r = 0; r < rows; ++r) {
      T* to = grad(r);
      for (int64_t c = 0; c < job.classes; ++c) to[c] = room[c * kWidth<T> + r];
      if (targets[r] != job.ignored) to[targets[r]] -= (T)job.weight;
    }
  }

  // The sum of the rows' losses
  double run() const {
    read();
    V top = load<T>(room), sum = {}, weight = {};
    for (int64_t c = 1; c < job.classes; ++c) {
      const V v = load<T>(room + c * kWidth<T>);
      top = v > top ? v : top;
    }
    for (int64_t c = 0; c < job.classes; ++c) {
      T* at = room + c * kWidth<T>;
      const V e = decayed<T>(load<T>(at) - top);
      store<T>(at, e);
      sum += e;
    }
    const int64_t* targets = job.targets + first;
    double total = 0;
    for (int64_t r = 0; r < rows; ++r) {
      if (targets[r] == job.ignored) continue;
      weight[r] = (T)job.weight;
      total += (double)(std::log(sum[r]) - (logits(r)[targets[r]] - top[r]));
    }
    if (job.grad) write(weight / sum, targets);
    return total;
  }
};

template <class T> void chunk(const Job& job, int64_t index) {
  alignas(64) char room[KREISS_CLASSES * kVectorBytes];
  const int64_t start = index * KREISS_ROWS, end = start + KREISS_ROWS < job.rows ? start + KREISS_ROWS : job.rows;
  double total = 0;
  for (int64_t row = start; row < end; row += kWidth<T>)
    total += Block<T>{job, row, end - row < kWidth<T> ? end - row : kWidth<T>, (T*)room}.run();
  job.sums[index] = total;
}

void run_chunks(const void* pass, int64_t first, int64_t chunks, int64_t) {
  const Job& job = *(const Job*)pass;
  for (int64_t c = first; c < first + chunks; ++c) (job.is_double ? chunk<double> : chunk<float>)(job, c);
}

void nothing(const void*) {}
void nothing_after(const void*, int64_t) {}

}  // namespace

extern "C" const kreiss_recurrence KREISS_NAMED(KREISS_ISA, entropy) = {run_chunks, nothing, nothing_after};
