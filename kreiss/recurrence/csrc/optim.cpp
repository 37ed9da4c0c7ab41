// RMSprop, Adam and AdamW: one pass over all parameters, compiled once per instruction set.
//
// Every operation is done in the order of torch's own, so that in float64, and where torch's vectors have no remainder
// in float32, results are the same to the bit. Numbers are cut into chunks of a fixed size, so that neither results nor
// the gradient norm depend on the number of threads.

#include <cmath>

#include "kernel.h"

namespace {

constexpr int64_t kChunk = KREISS_CHUNK;

// a b + c, rounded once where the machine can: as torch's vectors do it
template <class T> inline T fused(T a, T b, T c) {
#if defined(__FMA__) || defined(__aarch64__)
  return sizeof(T) == 4 ? (T)__builtin_fmaf((float)a, (float)b, (float)c) : (T)__builtin_fma(a, b, c);
#else
  return a * b + c;
#endif
}

// a + weight (b − a), from the nearer end
template <class T> inline T lerp(T a, T b, T weight) {
  return weight < T(0.5) ? fused<T>(weight, b - a, a) : fused<T>(weight - T(1), b - a, b);
}

// NaN if either is, as torch.maximum
template <class T> inline T larger(T a, T b) { return a > b || a != a ? a : b; }

// One chunk of one tensor
template <class T> struct Piece {
  T *param, *first, *second, *third;
  const T* grad;
  int64_t count;
};

template <class T> Piece<T> piece_of(const kreiss_leaf& leaf, int64_t start) {
  const int64_t left = leaf.count - start;
  auto at = [start](void* p) { return p ? (T*)p + start : nullptr; };
  return {at(leaf.param), at(leaf.first), at(leaf.second), at(leaf.third), (const T*)leaf.grad + start,
          left < kChunk ? left : kChunk};
}

// The gradient that is used: clipped, negated to maximise, with weight decay
template <class T> struct Gradient {
  T scale, decay;
  bool scaled, decays;
  inline T operator()(T grad, T param) const {
    const T g = scaled ? grad * scale : grad;
    return decays ? fused<T>(decay, param, g) : g;
  }
};

template <class T, bool kCentred, bool kMomentum>
void rmsprop(const Piece<T>& p, const kreiss_group& group, Gradient<T> gradient) {
  const T alpha = (T)group.first_rate, rest = (T)(1 - group.first_rate), eps = (T)group.eps;
  const T momentum = (T)group.second_rate, rate = (T)-group.lr;
#pragma GCC ivdep
  for (int64_t i = 0; i < p.count; ++i) {
    const T g = gradient(p.grad[i], p.param[i]);
    const T square = fused<T>(rest * g, g, p.first[i] * alpha);
    p.first[i] = square;
    T variance = square;
    if (kCentred) {
      const T mean = lerp<T>(p.third[i], g, rest);
      p.third[i] = mean;
      variance = fused<T>(-mean, mean, square);
    }
    const T root = std::sqrt(variance) + eps;
    if (kMomentum) {
      const T moved = p.second[i] * momentum + g / root;
      p.second[i] = moved;
      p.param[i] = fused<T>(rate, moved, p.param[i]);
    } else {
      p.param[i] = p.param[i] + rate * g / root;
    }
  }
}

template <class T, bool kAmsgrad>
void adam(const Piece<T>& p, const kreiss_group& group, Gradient<T> gradient, double step) {
  const double first = 1 - std::pow(group.first_rate, step), second = 1 - std::pow(group.second_rate, step);
  const T weight = (T)(1 - group.first_rate), beta = (T)group.second_rate, rest = (T)(1 - group.second_rate);
  const T correction = (T)std::sqrt(second), rate = (T)-(group.lr / first), eps = (T)group.eps;
  const T shrink = (T)(group.decoupled ? 1 - group.lr * group.decay : 1);
#pragma GCC ivdep
  for (int64_t i = 0; i < p.count; ++i) {
    const T before = p.param[i] * shrink, g = gradient(p.grad[i], before);
    const T mean = lerp<T>(p.first[i], g, weight);
    T square = fused<T>(rest * g, g, p.second[i] * beta);
    p.first[i] = mean;
    p.second[i] = square;
    if (kAmsgrad) p.third[i] = square = larger<T>(p.third[i], square);
    p.param[i] = before + rate * mean / (std::sqrt(square) / correction + eps);
  }
}

template <class T> void update(const kreiss_moves& moves, const kreiss_leaf& leaf, int64_t start) {
  const kreiss_group& group = moves.groups[leaf.group];
  const Piece<T> p = piece_of<T>(leaf, start);
  const double scale = group.maximize ? -moves.scale : moves.scale;
  const bool decays = group.decay != 0 && !group.decoupled;
  const Gradient<T> gradient = {(T)scale, (T)group.decay, scale != 1, decays};
  if (group.kind == KREISS_ADAM) {
    (p.third ? adam<T, true> : adam<T, false>)(p, group, gradient, *leaf.step);
  } else if (p.third) {
    (p.second ? rmsprop<T, true, true> : rmsprop<T, true, false>)(p, group, gradient);
  } else {
    (p.second ? rmsprop<T, false, true> : rmsprop<T, false, false>)(p, group, gradient);
  }
}

// The sum of squares of a chunk, in float64: independent sums let the compiler use vectors
template <class T> double squares(const T* grad, int64_t count) {
  double sums[16] = {};
  int64_t i = 0;
  for (; i + 16 <= count; i += 16)
    for (int j = 0; j < 16; ++j) sums[j] += (double)grad[i + j] * (double)grad[i + j];
  for (; i < count; ++i) sums[0] += (double)grad[i] * (double)grad[i];
  double total = 0;
  for (double sum : sums) total += sum;
  return total;
}

void run_chunks(const void* job, int64_t first, int64_t chunks, int64_t) {
  const kreiss_moves& moves = *(const kreiss_moves*)job;
  int64_t at = 0;  // number of the leaf's first chunk
  for (int64_t l = 0; l < moves.leaf_count && at < first + chunks; ++l) {
    const kreiss_leaf& leaf = moves.leaves[l];
    const int64_t of_leaf = (leaf.count + kChunk - 1) / kChunk;
    const int64_t from = first > at ? first - at : 0, to = first + chunks - at < of_leaf ? first + chunks - at : of_leaf;
    for (int64_t c = from; c < to; ++c) {
      const int64_t start = c * kChunk, left = leaf.count - start, count = left < kChunk ? left : kChunk;
      if (moves.updates)
        (leaf.is_double ? update<double> : update<float>)(moves, leaf, start);
      else
        moves.squares[at + c] = leaf.is_double ? squares((const double*)leaf.grad + start, count)
                                               : squares((const float*)leaf.grad + start, count);
    }
    at += of_leaf;
  }
}

void nothing(const void*) {}
void nothing_after(const void*, int64_t) {}

}  // namespace

extern "C" const kreiss_recurrence KREISS_NAMED(KREISS_ISA, optim) = {run_chunks, nothing, nothing_after};
