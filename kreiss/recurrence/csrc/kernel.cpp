// The recurrence h_t = φ(V h_{t-1} + u_t), forward and backward, for one instruction set.
//
// This file is compiled once per instruction set (see build_kernel.py) with KREISS_ISA naming it and
// KREISS_VECTOR_BYTES its vector width. It uses the vector extensions of GCC and Clang and no headers of torch.
//
// Threads own rows of the batch for the whole sequence, so nothing waits between time steps. V is packed once per
// pass into panels of two vectors; a register tile is up to six rows by one panel, or up to three rows by several
// panels when there are few rows. Sums run over blocks of K so that a panel block stays in the first-level cache.

#include <cstdint>
#include <cstring>

#include "kernel.h"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace {

// ------------------------------------------------------------------------------------------------ vectors

constexpr int kVectorBytes = KREISS_VECTOR_BYTES;

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
template <class T> inline typename Lanes<T>::V tanh_of(typename Lanes<T>::V x) {
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

template <class T, int Phi>
inline typename Lanes<T>::V apply(typename Lanes<T>::V z, typename Lanes<T>::V b) {
  typedef typename Lanes<T>::V V;
  const V zero = {};
  if constexpr (Phi == KREISS_IDENTITY) {
    return z + b;
  } else if constexpr (Phi == KREISS_RELU) {
    const V s = z + b;
    return s < zero ? zero : s;  // NaN is not < 0 and passes
  } else if constexpr (Phi == KREISS_TANH) {
    return tanh_of<T>(z + b);
  } else {  // modReLU: sign(z)·relu(|z| + b), 0 at z = 0
    const V m = (z < zero ? -z : z) + b;
    const V r = m < zero ? zero : m;
    const V signed_r = z < zero ? -r : r;
    return z == zero ? zero : signed_r;
  }
}

// φ'(z) from h = φ(z)
template <class T, int Phi>
inline typename Lanes<T>::V slope(typename Lanes<T>::V h) {
  typedef typename Lanes<T>::V V;
  const V zero = {};
  const V one = splat<T>(1);
  if constexpr (Phi == KREISS_IDENTITY) return one;
  if constexpr (Phi == KREISS_TANH) return one - h * h;
  if constexpr (Phi == KREISS_RELU) return h > zero ? one : zero;
  return h != zero ? one : zero;
}

// A vector of the first `count` numbers at p, zeros behind.
template <class T> inline typename Lanes<T>::V load_part(const T* p, int64_t count) {
  typename Lanes<T>::V v = {};
  std::memcpy(&v, p, (size_t)count * sizeof(T));
  return v;
}
template <class T> inline void store_part(T* p, typename Lanes<T>::V v, int64_t count) {
  std::memcpy(p, &v, (size_t)count * sizeof(T));
}

// ------------------------------------------------------------------------------------------------ products

constexpr int64_t kBlockK = 512;

// out[r][panel p] (+)= Σ_k a[r][k]·panel_p[k] for k in [0, depth); R rows, P panels side by side.
template <class T, int R, int P, bool Accumulate>
inline void tile(const T* a, int64_t lda, const T* packed, int64_t panel_stride, int64_t depth, T* out, int64_t ldo,
                 int64_t columns) {
  typedef typename Lanes<T>::V V;
  constexpr int W = kWidth<T>;
  V acc[R][2 * P];
  for (int r = 0; r < R; ++r)
    for (int j = 0; j < 2 * P; ++j) acc[r][j] = V{};
  for (int64_t k = 0; k < depth; ++k) {
    V v[2 * P];
    for (int p = 0; p < P; ++p)
      for (int j = 0; j < 2; ++j) v[2 * p + j] = load<T>(packed + p * panel_stride + k * kPanel<T> + j * W);
    for (int r = 0; r < R; ++r) {
      const T x = a[r * lda + k];
      for (int j = 0; j < 2 * P; ++j) acc[r][j] += x * v[j];
    }
  }
  for (int r = 0; r < R; ++r) {
    T* row = out + r * ldo;
    for (int j = 0; j < 2 * P; ++j) {
      const int64_t left = columns - j * W;
      if (left >= W) {
        store<T>(row + j * W, Accumulate ? load<T>(row + j * W) + acc[r][j] : acc[r][j]);
      } else if (left > 0) {
        store_part<T>(row + j * W, Accumulate ? load_part<T>(row + j * W, left) + acc[r][j] : acc[r][j], left);
      }
    }
  }
}

template <class T, bool Accumulate>
inline void panel_rows(int64_t rows, const T* a, int64_t lda, const T* packed, int64_t depth, T* out, int64_t ldo,
                       int64_t columns) {
  int64_t r = 0;
  for (; r + 6 <= rows; r += 6) tile<T, 6, 1, Accumulate>(a + r * lda, lda, packed, 0, depth, out + r * ldo, ldo, columns);
  const T* rest = a + r * lda;
  T* to = out + r * ldo;
  switch (rows - r) {
    case 5: tile<T, 5, 1, Accumulate>(rest, lda, packed, 0, depth, to, ldo, columns); break;
    case 4: tile<T, 4, 1, Accumulate>(rest, lda, packed, 0, depth, to, ldo, columns); break;
    case 3: tile<T, 3, 1, Accumulate>(rest, lda, packed, 0, depth, to, ldo, columns); break;
    case 2: tile<T, 2, 1, Accumulate>(rest, lda, packed, 0, depth, to, ldo, columns); break;
    case 1: tile<T, 1, 1, Accumulate>(rest, lda, packed, 0, depth, to, ldo, columns); break;
    default: break;
  }
}

// Several panels at once for few rows: more independent sums to hide the latency of a multiply-add.
template <class T, int R, int P, bool Accumulate>
inline int64_t wide(int64_t first, int64_t panels, const T* a, int64_t lda, const T* packed, int64_t stride,
                    int64_t depth, T* out, int64_t ldo, int64_t n) {
  for (; first + P <= panels; first += P) {
    const int64_t column = first * kPanel<T>;
    tile<T, R, P, Accumulate>(a, lda, packed + first * stride, stride, depth, out + column, ldo, n - column);
  }
  return first;
}

template <class T, bool Accumulate>
inline void block_product(int64_t rows, int64_t n, const T* a, int64_t lda, const T* packed, int64_t stride,
                          int64_t depth, T* out, int64_t ldo) {
  const int64_t panels = (n + kPanel<T> - 1) / kPanel<T>;
  int64_t first = 0;
  if (rows == 1) first = wide<T, 1, 4, Accumulate>(0, panels, a, lda, packed, stride, depth, out, ldo, n);
  if (rows == 2) first = wide<T, 2, 3, Accumulate>(0, panels, a, lda, packed, stride, depth, out, ldo, n);
  if (rows == 3) first = wide<T, 3, 2, Accumulate>(0, panels, a, lda, packed, stride, depth, out, ldo, n);
  for (int64_t p = first; p < panels; ++p) {
    const int64_t column = p * kPanel<T>;
    panel_rows<T, Accumulate>(rows, a, lda, packed + p * stride, depth, out + column, ldo, n - column);
  }
}

// out = (or +=) a·packed: `rows` rows of `depth` numbers become rows of n
template <class T>
inline void product(int64_t rows, int64_t depth, int64_t n, const T* a, const T* packed, T* out, bool accumulate) {
  const int64_t stride = depth * kPanel<T>;
  for (int64_t k = 0; k < depth; k += kBlockK) {
    const int64_t part = depth - k < kBlockK ? depth - k : kBlockK;
    const T* block = packed + k * kPanel<T>;
    if (accumulate || k > 0)
      block_product<T, true>(rows, n, a + k, depth, block, stride, part, out, n);
    else
      block_product<T, false>(rows, n, a, depth, block, stride, part, out, n);
  }
}

// ------------------------------------------------------------------------------------------------ forward

template <class T, int Phi> inline void finish(T* row, const T* bias, int64_t n) {
  typedef typename Lanes<T>::V V;
  constexpr int W = kWidth<T>;
  const V none = {};
  int64_t j = 0;
  for (; j + W <= n; j += W) store<T>(row + j, apply<T, Phi>(load<T>(row + j), bias ? load<T>(bias + j) : none));
  if (j < n) {
    const int64_t left = n - j;
    store_part<T>(row + j, apply<T, Phi>(load_part<T>(row + j, left), bias ? load_part<T>(bias + j, left) : none), left);
  }
}

template <class T, int Phi> void forward_rows(const kreiss_pass& p, int64_t first, int64_t rows) {
  const int64_t n = p.n, step = p.batch * n;
  T* states = (T*)p.states + first * n;
  const T* bias = (const T*)p.bias;
  const T* before = (const T*)p.h0 + first * n;
  for (int64_t i = 0; i < p.steps; ++i) {
    const int64_t t = p.reverse ? p.steps - 1 - i : i;
    T* now = states + t * step;
    if (p.symbols)
      for (int64_t r = 0; r < rows; ++r)
        std::memcpy(now + r * n, (const T*)p.table + p.symbols[t * p.batch + first + r] * n, (size_t)n * sizeof(T));
    if (p.x)
      product<T>(rows, p.inputs, n, (const T*)p.x + (t * p.batch + first) * p.inputs, (const T*)p.packed_inputs, now, false);
    product<T>(rows, n, n, before, (const T*)p.packed, now, true);
    for (int64_t r = 0; r < rows; ++r) {
      if (p.lengths && t >= p.lengths[first + r])
        std::memcpy(now + r * n, before + r * n, (size_t)n * sizeof(T));
      else
        finish<T, Phi>(now + r * n, bias, n);
    }
    before = now;
  }
}

// ------------------------------------------------------------------------------------------------ backward

// dz = (grad + carry)·φ'(h), written to p.inner; carry for the step before.
template <class T, int Phi>
inline void inner_row(const T* grad, const T* state, T* carry, T* inner, int64_t n) {
  typedef typename Lanes<T>::V V;
  constexpr int W = kWidth<T>;
  int64_t j = 0;
  for (; j + W <= n; j += W) {
    const V g = grad ? load<T>(carry + j) + load<T>(grad + j) : load<T>(carry + j);
    store<T>(inner + j, g * slope<T, Phi>(load<T>(state + j)));
  }
  if (j < n) {
    const int64_t left = n - j;
    const V c = load_part<T>(carry + j, left);
    const V g = grad ? c + load_part<T>(grad + j, left) : c;
    store_part<T>(inner + j, g * slope<T, Phi>(load_part<T>(state + j, left)), left);
  }
}

// to += x·row
template <class T> inline void add_scaled(T* to, T x, const T* row, int64_t n) {
  constexpr int W = kWidth<T>;
  int64_t j = 0;
  for (; j + W <= n; j += W) store<T>(to + j, load<T>(to + j) + x * load<T>(row + j));
  for (; j < n; ++j) to[j] += x * row[j];
}

// The gradient of a bias: dz itself, or dz·sign(h) for the threshold of modReLU.
template <class T, int Phi> inline void add_bias(T* to, const T* dz, const T* state, int64_t n) {
  typedef typename Lanes<T>::V V;
  constexpr int W = kWidth<T>;
  if constexpr (Phi != KREISS_MODRELU) {
    add_scaled<T>(to, (T)1, dz, n);
  } else {
    const V zero = {};
    int64_t j = 0;
    for (; j + W <= n; j += W) {
      const V d = load<T>(dz + j);
      store<T>(to + j, load<T>(to + j) + (load<T>(state + j) < zero ? -d : d));  // dz is 0 where h is 0
    }
    for (; j < n; ++j) to[j] += state[j] < 0 ? -dz[j] : dz[j];
  }
}

template <class T, int Phi> void backward_rows(const kreiss_pass& p, int64_t first, int64_t rows, int64_t thread) {
  T* grad_inputs = p.grad_inputs ? (T*)p.grad_inputs + thread * p.inputs * p.n : nullptr;
  T* grad_bias = p.grad_bias ? (T*)p.grad_bias + thread * p.n : nullptr;
  const int64_t n = p.n, step = p.batch * n;
  const T* states = (const T*)p.states + first * n;
  const T* grad = p.grad ? (const T*)p.grad + first * n : nullptr;
  T* inner = (T*)p.inner + first * n;
  T* carry = (T*)p.carry + first * n;
  for (int64_t i = 0; i < p.steps; ++i) {
    const int64_t t = p.reverse ? i : p.steps - 1 - i;
    const T* g = grad ? grad + t * step : nullptr;
    T* dz = inner + t * step;
    bool whole = true;
    for (int64_t r = 0; r < rows; ++r) {
      if (p.lengths && t + p.first_step >= p.lengths[first + r]) {
        std::memset(dz + r * n, 0, (size_t)n * sizeof(T));
        if (g) for (int64_t j = 0; j < n; ++j) carry[r * n + j] += g[r * n + j];
        whole = false;
      } else {
        const T* state = states + t * step + r * n;
        inner_row<T, Phi>(g ? g + r * n : nullptr, state, carry + r * n, dz + r * n, n);
        if (grad_bias) add_bias<T, Phi>(grad_bias, dz + r * n, state, n);
        const int64_t at = t * p.batch + first + r;
        if (grad_inputs && p.symbols) add_scaled<T>(grad_inputs + p.symbols[at] * n, (T)1, dz + r * n, n);
        if (grad_inputs && p.x)
          for (int64_t i = 0; i < p.inputs; ++i)
            add_scaled<T>(grad_inputs + i * n, ((const T*)p.x)[at * p.inputs + i], dz + r * n, n);
      }
    }
    if (whole) {
      product<T>(rows, n, n, dz, (const T*)p.packed, carry, false);
    } else {  // rows past their end keep their carry
      for (int64_t r = 0; r < rows; ++r)
        if (t + p.first_step < p.lengths[first + r])
          product<T>(1, n, n, dz + r * n, (const T*)p.packed, carry + r * n, false);
    }
  }
}

// ------------------------------------------------------------------------------------------------ entry points

// Panels of a (depth, n) matrix whose element (k, j) stands at v[k·k_stride + j·n_stride]
template <class T> void pack(const T* v, int64_t depth, int64_t n, int64_t k_stride, int64_t n_stride, T* out) {
  const int64_t panels = (n + kPanel<T> - 1) / kPanel<T>;
  for (int64_t p = 0; p < panels; ++p)
    for (int64_t k = 0; k < depth; ++k)
      for (int64_t j = 0; j < kPanel<T>; ++j) {
        const int64_t column = p * kPanel<T> + j;
        out[(p * depth + k) * kPanel<T> + j] = column >= n ? (T)0 : v[k * k_stride + column * n_stride];
      }
}

// Denormal numbers are flushed inside the kernel; the caller's floating-point state comes back at the end.
struct FlushDenormals {
#if defined(__SSE2__)
  unsigned int saved;
  FlushDenormals() : saved(_mm_getcsr()) { _mm_setcsr(saved | 0x8040); }
  ~FlushDenormals() { _mm_setcsr(saved); }
#endif
};

template <class T> void rows_of(const kreiss_pass& p, int64_t first, int64_t rows, int64_t thread) {
  FlushDenormals flush;
  (void)flush;
#define KREISS_RUN(PHI) \
  (p.backward ? backward_rows<T, PHI>(p, first, rows, thread) : forward_rows<T, PHI>(p, first, rows))
  switch (p.nonlinearity) {
    case KREISS_IDENTITY: KREISS_RUN(KREISS_IDENTITY); break;
    case KREISS_TANH: KREISS_RUN(KREISS_TANH); break;
    case KREISS_RELU: KREISS_RUN(KREISS_RELU); break;
    default: KREISS_RUN(KREISS_MODRELU); break;
  }
#undef KREISS_RUN
}

void run_rows(const kreiss_pass* p, int64_t first, int64_t rows, int64_t thread) {
  if (p->is_double)
    rows_of<double>(*p, first, rows, thread);
  else
    rows_of<float>(*p, first, rows, thread);
}

void pack_any(int is_double, const void* v, int64_t depth, int64_t n, int64_t k_stride, int64_t n_stride, void* out) {
  if (is_double)
    pack<double>((const double*)v, depth, n, k_stride, n_stride, (double*)out);
  else
    pack<float>((const float*)v, depth, n, k_stride, n_stride, (float*)out);
}

}  // namespace

extern "C" const kreiss_kernel KREISS_ISA = {run_rows, pack_any, kVectorBytes};
