// Large matrix products, compiled once per instruction set: out (+)= A·B with any strides.
//
// A thread has some strips of six or eight rows of out. Sums run over blocks of k: a block of A is packed into strips,
// which stay in the second-level cache, and one panel of B after the other, which stays in the first-level one. Every sum
// runs over k in order, so that results do not depend on the number of threads.

#include "products.h"

namespace {

constexpr int kStrip = kreiss_strip(kVectorBytes);
template <class T> constexpr int64_t kDepth = KREISS_BLOCK / (kPanel<T> * (int)sizeof(T));  // of a block of k

// The rows [first, first + rows) of A in strips, columns [start, start + depth); rows that are not there are 0
template <class T>
void pack_strips(const kreiss_product& job, int64_t first, int64_t rows, int64_t start, int64_t depth, T* out) {
  for (int64_t row = 0; row < rows; row += kStrip, out += depth * kStrip) {
    const T* a = (const T*)job.a + (first + row) * job.a_row + start * job.a_k;
    const int64_t count = rows - row < kStrip ? rows - row : kStrip;
    if (count < kStrip) std::memset(out, 0, (size_t)(depth * kStrip) * sizeof(T));
    if (job.a_row == 1 && count == kStrip) {
      for (int64_t k = 0; k < depth; ++k) std::memcpy(out + k * kStrip, a + k * job.a_k, kStrip * sizeof(T));
    } else {
      for (int64_t r = 0; r < count; ++r)
        for (int64_t k = 0; k < depth; ++k) out[k * kStrip + r] = a[r * job.a_row + k * job.a_k];
    }
  }
}

// A strip by a panel: sums over a block of k, added to what out holds where `add` says so
template <class T>
void tile(const kreiss_product& job, const T* a, const T* b, int64_t depth, int64_t row, int64_t column, bool add) {
  typename Lanes<T>::V acc[kStrip][2] = {};
  for (int64_t k = 0; k < depth; ++k) {
    const typename Lanes<T>::V v[2] = {load<T>(b + k * kPanel<T>), load<T>(b + k * kPanel<T> + kWidth<T>)};
    for (int r = 0; r < kStrip; ++r)
      for (int j = 0; j < 2; ++j) acc[r][j] += a[k * kStrip + r] * v[j];
  }
#pragma GCC unroll 8
  for (int r = 0; r < kStrip; ++r)
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      const int64_t left = job.columns - column - j * kWidth<T>;
      T* to = (T*)job.out + (row + r) * job.columns + column + j * kWidth<T>;
      if (row + r < job.rows && left > 0) put<T>(to, add ? get<T>(to, left) + acc[r][j] : acc[r][j], left);
    }
}

template <class T> void multiply_strips(const kreiss_product& job, int64_t first, int64_t rows, T* room) {
  const FlushDenormals flush;
  T* panel = room + (rows + kStrip - 1) / kStrip * kStrip * kDepth<T>;
  for (int64_t start = 0; start < job.depth; start += kDepth<T>) {
    const int64_t depth = job.depth - start < kDepth<T> ? job.depth - start : kDepth<T>;
    pack_strips<T>(job, first, rows, start, depth, room);
    for (int64_t column = 0; column < job.columns; column += kPanel<T>) {
      const int64_t width = job.columns - column < kPanel<T> ? job.columns - column : kPanel<T>;
      const T* b = (const T*)job.b + start * job.b_k + column * job.b_column;
      pack_panel<T>(b, depth, width, job.b_k, job.b_column, panel);
      for (int64_t row = 0; row < rows; row += kStrip)
        tile<T>(job, room + row * depth, panel, depth, first + row, column, job.add || start > 0);
    }
  }
}

void run_strips(const void* job_, int64_t first, int64_t strips, int64_t thread) {
  const kreiss_product& job = *(const kreiss_product*)job_;
  const int64_t row = first * kStrip, rows = strips * kStrip < job.rows - row ? strips * kStrip : job.rows - row;
  char* room = (char*)job.room + thread * job.room_bytes;
  job.is_double ? multiply_strips<double>(job, row, rows, (double*)room) : multiply_strips<float>(job, row, rows, (float*)room);
}

void nothing(const void*) {}
void nothing_after(const void*, int64_t) {}

}  // namespace

extern "C" const kreiss_recurrence KREISS_NAMED(KREISS_ISA, matmul) = {run_strips, nothing, nothing_after};
