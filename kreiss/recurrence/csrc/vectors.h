// Vectors of one instruction set, and the nonlinearities on them.
//
// Uses the vector extensions of GCC and Clang; KREISS_VECTOR_BYTES is the width (see setup.py).
#pragma once
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernel.h"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace {  // each file that includes this is compiled once per instruction set, with its own copy

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

// The sum of all lanes: the upper half is added to the lower until 16 bytes are left
template <class T, int Bytes> struct Fold {
  typedef T Whole __attribute__((vector_size(Bytes)));
  typedef T Half __attribute__((vector_size(Bytes / 2)));
  static KREISS_INLINE T total(Whole v) {
    Half low, high;
    std::memcpy(&low, &v, sizeof(Half));
    std::memcpy(&high, (const char*)&v + sizeof(Half), sizeof(Half));
    return Fold<T, Bytes / 2>::total(low + high);
  }
};
template <class T> struct Fold<T, 16> {
  typedef T Whole __attribute__((vector_size(16)));
  static KREISS_INLINE T total(Whole v) {
    T sum = v[0];
    for (int i = 1; i < 16 / (int)sizeof(T); ++i) sum += v[i];
    return sum;
  }
};
template <class T> KREISS_INLINE T total(typename Lanes<T>::V v) { return Fold<T, kVectorBytes>::total(v); }

// tanh|x| = e/(e+2) with e = expm1(2|x|), which keeps full relative accuracy near 0.
template <class T> KREISS_INLINE typename Lanes<T>::V tanh_inline(typename Lanes<T>::V x) {
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
// e^x where neither it nor its inverse overflows; no check
template <class T> KREISS_INLINE typename Lanes<T>::V exp_inline(typename Lanes<T>::V x) {
  typedef typename Lanes<T>::V V;
  typedef typename Lanes<T>::I I;
  const T ln2_high = (T)(sizeof(T) == 4 ? 0.693145751953125 : 0.6931471803691238);
  const T ln2_low = (T)(sizeof(T) == 4 ? 1.42860682030941723212e-6 : 1.9082149292705877e-10);
  const V y = x * (T)1.4426950408889634;
  const I k = __builtin_convertvector(y + (x < V{} ? splat<T>((T)-0.5) : splat<T>((T)0.5)), I);
  const V n = __builtin_convertvector(k, V);
  const V r = (x - n * ln2_high) - n * ln2_low;
  V p = {};
  T factorial[Lanes<T>::kTerms + 1];
  factorial[0] = 1;
  for (int i = 1; i <= Lanes<T>::kTerms; ++i) factorial[i] = factorial[i - 1] * (T)i;
  for (int i = Lanes<T>::kTerms; i >= 0; --i) p = p * r + (T)1 / factorial[i];
  const I bits = (k + (typename Lanes<T>::Int)Lanes<T>::kBias) << Lanes<T>::kMantissa;
  V scale;
  std::memcpy(&scale, &bits, sizeof(V));
  return scale * p;
}
template <class T> __attribute__((noinline)) typename Lanes<T>::V tanh_of(typename Lanes<T>::V x) {
  return tanh_inline<T>(x);
}
template <class T> constexpr T kFar = sizeof(T) == 4 ? (T)87 : (T)708;  // e^−x is a normal number up to here

// e^−|x| is exact to rounding, and so is the sigmoid on both sides: 1/(1 + e) and e/(1 + e).
template <class T> __attribute__((noinline)) typename Lanes<T>::V sigmoid_of(typename Lanes<T>::V x) {
  typedef typename Lanes<T>::V V;
  typedef typename Lanes<T>::I I;
  const V zero = {};
  const V a = x < zero ? -x : x;
  const V y = a > kFar<T> ? splat<T>(kFar<T>) : a;  // a NaN stays a NaN
  const T ln2_high = (T)(sizeof(T) == 4 ? 0.693145751953125 : 0.6931471803691238);
  const T ln2_low = (T)(sizeof(T) == 4 ? 1.42860682030941723212e-6 : 1.9082149292705877e-10);
  const I k = __builtin_convertvector(y * (T)1.4426950408889634 + (T)0.5, I);
  const V n = __builtin_convertvector(k, V);
  const V r = (n * ln2_high - y) + n * ln2_low;
  V p = zero;
  T factorial[Lanes<T>::kTerms + 1];
  factorial[0] = 1;
  for (int i = 1; i <= Lanes<T>::kTerms; ++i) factorial[i] = factorial[i - 1] * (T)i;
  for (int i = Lanes<T>::kTerms; i >= 0; --i) p = p * r + (T)1 / factorial[i];
  const I bits = ((typename Lanes<T>::Int)Lanes<T>::kBias - k) << Lanes<T>::kMantissa;
  V scale;
  std::memcpy(&scale, &bits, sizeof(V));  // 2^−k
  const V e = a > kFar<T> ? zero : scale * p;
  const V s = (x < zero ? e : splat<T>(1)) / (e + (T)1);
  return x == x ? s : x;
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

// body(j, count) for every vector of a row; the count is a constant but at its end, so that most need no test of it
template <class T, class Body> KREISS_INLINE void each_vector(int64_t n, const Body& body) {
  int64_t j = 0;
  for (; j + kWidth<T> <= n; j += kWidth<T>) body(j, (int64_t)kWidth<T>);
  if (j < n) body(j, n - j);
}
#define KREISS_BODY [&](int64_t j, int64_t left) __attribute__((always_inline))

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

}  // namespace
