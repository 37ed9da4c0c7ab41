// Chooses the instruction set at run time and shares rows of the batch among threads.

#if defined(__linux__)
#include <sys/mman.h>
#endif
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "kernel.h"

#define KREISS_DECLARE(isa) \
  extern const kreiss_recurrence KREISS_NAMED(isa, plain), KREISS_NAMED(isa, gated), KREISS_NAMED(isa, memory), \
      KREISS_NAMED(isa, optim), KREISS_NAMED(isa, entropy), KREISS_NAMED(isa, basepoint), KREISS_NAMED(isa, matmul)
extern "C" {
KREISS_DECLARE(kreiss_generic);
#if defined(KREISS_X86)
KREISS_DECLARE(kreiss_avx2);
KREISS_DECLARE(kreiss_avx512);
#endif
}

namespace {

// Every recurrence, for one instruction set
struct Choice {
  const char* name;
  int vector_bytes;
  const kreiss_recurrence *plain, *gated, *memory, *optim, *entropy, *basepoint, *matmul;
};
#define KREISS_CHOICE(name, bytes, isa) \
  Choice{name, bytes, &KREISS_NAMED(isa, plain), &KREISS_NAMED(isa, gated), &KREISS_NAMED(isa, memory), \
         &KREISS_NAMED(isa, optim), &KREISS_NAMED(isa, entropy), &KREISS_NAMED(isa, basepoint), \
         &KREISS_NAMED(isa, matmul)}

#if defined(__aarch64__)
constexpr const char* kPlain = "neon";  // vectors of 16 bytes are its own
#else
constexpr const char* kPlain = "generic";
#endif

const Choice kGeneric = KREISS_CHOICE(kPlain, 16, kreiss_generic);
#if defined(KREISS_X86)
const Choice kAvx2 = KREISS_CHOICE("avx2", 32, kreiss_avx2), kAvx512 = KREISS_CHOICE("avx512", 64, kreiss_avx512);
#endif

Choice best() {
#if defined(KREISS_X86)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) return kAvx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return kAvx2;
#endif
  return kGeneric;
}

Choice chosen = best();

// torch's own thread pool, reached through the one function of the OpenMP ABI that starts a team. Sharing it means no
// second set of threads beside torch's. Null: plain threads, started per call.
typedef void (*parallel_fn)(void (*)(void*), void*, unsigned, unsigned);
typedef int (*thread_number_fn)();
parallel_fn team_parallel = nullptr;
thread_number_fn team_thread_number = nullptr;
thread_number_fn team_size = nullptr;
pid_t team_owner = 0;  // threads do not survive a fork: a child must not wait for its parent's team

struct Job {
  const kreiss_recurrence* recurrence;
  const void* pass;
  int64_t batch, threads;  // rows of the batch, or other shares, for so many threads
};

void run_share(const Job& job, int64_t thread) {
  const int64_t first = job.batch * thread / job.threads, last = job.batch * (thread + 1) / job.threads;
  if (last > first) job.recurrence->run_rows(job.pass, first, last - first, thread);
}

void team_member(void* data) {
  const Job& job = *(const Job*)data;
  // The runtime may give fewer threads than asked for; every share is done all the same, and in the same way.
  for (int64_t share = team_thread_number(); share < job.threads; share += team_size()) run_share(job, share);
}

void run(const Job& job) {
  if (job.threads == 1) {
    run_share(job, 0);
  } else if (team_parallel && getpid() == team_owner) {
    team_parallel(team_member, (void*)&job, (unsigned)job.threads, 0);
  } else {
    std::vector<std::thread> others;
    for (int64_t i = 1; i < job.threads; ++i) others.emplace_back(run_share, job, i);
    run_share(job, 0);
    for (auto& thread : others) thread.join();
  }
}

int64_t within(int64_t threads, int64_t batch) { return threads < 1 ? 1 : threads > batch ? batch : threads; }

// ------------------------------------------------------------------------------------------------ base points

int64_t panel_width(int is_double) { return 2 * chosen.vector_bytes / (is_double ? 8 : 4); }
int64_t panels_of(const kreiss_base_pass& pass) {
  return (pass.n + panel_width(pass.is_double) - 1) / panel_width(pass.is_double);
}

template <class T> bool any(const void* free, int64_t count) {
  const T* x = (const T*)free;
  int64_t i = 0;
  for (; i + 64 <= count; i += 64) {
    int found = 0;
    for (int j = 0; j < 64; ++j) found |= x[i + j] != 0;  // NaN is not 0
    if (found) return true;
  }
  for (; i < count; ++i)
    if (x[i] != 0) return true;
  return false;
}

bool is_moved(const kreiss_base_pass& pass) {
  const int64_t count = pass.n * (pass.n - 1) / 2;
  return pass.is_double ? any<double>(pass.free, count) : any<float>(pass.free, count);
}

void run_phase(kreiss_base_pass& pass, int32_t phase) {
  pass.phase = phase;
  run({chosen.basepoint, &pass, pass.threads, pass.threads});
}

double total(const kreiss_base_pass& pass) {
  double sum = 0;
  for (int64_t panel = 0; panel < panels_of(pass); ++panel) sum += pass.sums[panel];
  return sum;
}

// Corrects the moved base point by a Newton–Schulz step if it is not orthogonal to rounding: see `polished` of linalg.py.
bool polish(kreiss_base_pass& pass, double eps) {
  run_phase(pass, KREISS_PROBE_ROWS);
  run_phase(pass, KREISS_PROBE_COLUMNS);
  const double off = std::sqrt(total(pass) / (double)pass.n), limit = pass.is_double ? std::sqrt((double)pass.n) : 4;
  if (off <= limit * eps) return false;
  run_phase(pass, KREISS_GRAM);
  run_phase(pass, KREISS_POLISH);
  return true;
}

// Moves the base by a series whose remainder is below rounding, see `turned` of linalg.py; 1, with nothing done, if there
// is no short one.
int rebase(kreiss_base_pass& pass) {
  const double eps = pass.is_double ? std::ldexp(1.0, -52) : std::ldexp(1.0, -23);
  std::vector<double> numbers((size_t)(3 * pass.n));
  pass.sums = numbers.data(), pass.probed = pass.sums + pass.n, pass.probe = pass.probed + pass.n;
  for (int64_t i = 0; i < pass.n; ++i) numbers[(size_t)(2 * pass.n + i)] = i % 3 == 1 ? -1 : 1;
  run_phase(pass, KREISS_HALF);
  run_phase(pass, KREISS_SQUARE);
  const double size = std::sqrt(std::sqrt(total(pass) / 2));  // ‖A/2‖² ≤ ‖E²‖_F/√2: eigenvalues come in pairs
  int pairs = 1;  // of powers
  while (pairs <= KREISS_MOST_PAIRS && !(2 * std::pow(size, 2 * pairs + 1) <= eps / 4)) ++pairs;
  if (pairs > KREISS_MOST_PAIRS) return 1;
  for (pass.pair = 1; pass.pair < pairs; ++pass.pair) run_phase(pass, KREISS_SERIES);
  run_phase(pass, KREISS_MOVE);
  if (!pass.project || !polish(pass, eps)) run_phase(pass, KREISS_KEEP);
  if (pass.n > 1) std::memset(pass.free, 0, (size_t)(pass.n * (pass.n - 1) / 2) * (pass.is_double ? 8 : 4));
  return 0;
}

// ------------------------------------------------------------------------------------------------ products

// Multiplications that are worth a thread: another core has to fetch what the first one wrote
constexpr int64_t kThreadsWorth = int64_t(1) << 23;
constexpr int64_t kLine = 64;                        // bytes of a cache line

void multiply(kreiss_product job, int64_t threads) {
  const int64_t size = job.is_double ? 8 : 4, strip = kreiss_strip(chosen.vector_bytes), strips = (job.rows + strip - 1) / strip;
  if (!job.rows || !job.columns) return;  // nothing has an address then
  if (!job.depth && !job.add) std::memset(job.out, 0, (size_t)(job.rows * job.columns * size));
  if (!job.depth) return;
  threads = within(within(threads, 1 + job.rows * job.columns * job.depth / kThreadsWorth), strips);
  const int64_t depth = KREISS_BLOCK / (panel_width(job.is_double) * size), most = (strips + threads - 1) / threads;
  job.room_bytes = (most * strip * depth * size + KREISS_BLOCK + kLine - 1) / kLine * kLine;
  const std::unique_ptr<char, decltype(&std::free)> room((char*)std::aligned_alloc(kLine, (size_t)(threads * job.room_bytes)), std::free);
  job.room = room.get();
  run({chosen.matmul, &job, strips, threads});
}

// grad_matrix (+)= Σ_t dz_t h_{t−1}ᵀ over a piece
void add_gradient(const kreiss_pass& pass, int64_t threads) {
  const int64_t n = pass.n, size = pass.is_double ? 8 : 4, step = pass.batch * n * size, rest = (pass.steps - 1) * step;
  const char *dz = (const char*)pass.inner, *h = (const char*)pass.states;
  kreiss_product job = {n, n, (pass.steps - 1) * pass.batch, 1, n, n, 1, pass.is_double, !pass.first_piece};
  job.a = pass.reverse ? dz : dz + step, job.b = pass.reverse ? h + step : h, job.out = pass.grad_matrix;
  multiply(job, threads);
  if (!pass.h0) return;
  job.a = pass.reverse ? dz + rest : dz, job.b = pass.h0, job.depth = pass.batch, job.add = 1;
  multiply(job, threads);
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int kreiss_interface() { return KREISS_INTERFACE; }

__attribute__((visibility("default"))) const char* kreiss_isa() { return chosen.name; }

// Take another instruction set that this machine supports, for tests; returns 0 if it does not.
__attribute__((visibility("default"))) int kreiss_use_isa(int vector_bytes) {
  if (vector_bytes > best().vector_bytes) return 0;
#if defined(KREISS_X86)
  if (vector_bytes == 64) { chosen = kAvx512; return 1; }
  if (vector_bytes == 32) { chosen = kAvx2; return 1; }
#endif
  if (vector_bytes == 16) { chosen = kGeneric; return 1; }
  return 0;
}

__attribute__((visibility("default"))) void kreiss_use_team(void* parallel, void* thread_number,
                                                            void* size) {
  team_parallel = (parallel_fn)parallel;
  team_thread_number = (thread_number_fn)thread_number;
  team_size = (thread_number_fn)size;
  team_owner = getpid();
}

// Memory about to be filled for the first time: where the system offers large pages, take them, because a long sequence
// otherwise spends its time on page faults. Only advice: nothing depends on it.
__attribute__((visibility("default"))) void kreiss_expect(void* start, int64_t bytes) {
#if defined(MADV_HUGEPAGE)
  const uintptr_t page = uintptr_t(1) << 21;
  const uintptr_t first = ((uintptr_t)start + page - 1) / page * page, last = ((uintptr_t)start + bytes) / page * page;
  if (last > first) madvise((void*)first, last - first, MADV_HUGEPAGE);
#else
  (void)start, (void)bytes;
#endif
}

// Returns 1, with nothing done, where a symbol is none of the `inputs` there are; else 0.
__attribute__((visibility("default"))) int kreiss_run(const kreiss_pass* pass, int64_t threads) {
  if (pass->symbols)
    for (int64_t i = 0; i < pass->steps * pass->batch; ++i)
      if (pass->symbols[i] < 0 || pass->symbols[i] >= pass->inputs) return 1;
  const Job job = {chosen.plain, pass, pass->batch, within(threads, pass->batch)};
  if (pass->first_piece) chosen.plain->prepare(pass);
  run(job);
  if (pass->last_piece && pass->sums) chosen.plain->gather(pass, job.threads);
  if (pass->grad_matrix) add_gradient(*pass, threads);
  return 0;
}

// One update of all layers of a chain, from x or symbols. Returns the buffer that holds the new states, or −1, with nothing
// done, where a symbol is none of the inputs there are.
__attribute__((visibility("default"))) int kreiss_step(kreiss_chain* chain, const void* x, const int64_t* symbols) {
  const int turn = (int)chain->turn;
  chain->passes[turn].x = x;
  chain->passes[turn].symbols = symbols;
  for (int64_t layer = 0; layer < chain->layers; ++layer) {
    kreiss_pass& pass = chain->passes[2 * layer + turn];
    if (kreiss_run(&pass, chain->threads)) return -1;  // only the lowest layer reads symbols
    pass.first_piece = 0;                              // packed
  }
  chain->turn = 1 - turn;
  return turn;
}

// kreiss_run for the gated recurrence.
__attribute__((visibility("default"))) int kreiss_run_gated(const kreiss_gated_pass* pass, int64_t threads) {
  if (pass->symbols)
    for (int64_t i = 0; i < pass->steps * pass->batch; ++i)
      if (pass->symbols[i] < 0 || pass->symbols[i] >= pass->inputs) return 1;
  Job job = {chosen.gated, pass, pass->batch, within(threads, pass->batch)};
  if (pass->first_piece) chosen.gated->prepare(pass);
  run(job);
  if (pass->last_piece && pass->sums) chosen.gated->gather(pass, job.threads);
  return 0;
}

__attribute__((visibility("default"))) void kreiss_run_memory(const kreiss_memory_pass* pass, int64_t threads) {
  Job job = {chosen.memory, pass, pass->rows, within(threads, pass->rows)};
  chosen.memory->prepare(pass);
  run(job);
  if (pass->backward) chosen.memory->gather(pass, job.threads);
}

// Numbers that a job at a base point needs room for
__attribute__((visibility("default"))) int64_t kreiss_base_room(int is_double, int64_t n, int64_t threads) {
  return 4 * n * n + within(threads, n) * n * panel_width(is_double);
}

// One job at a base point. Returns 1, with nothing done, where A is not 0, or for a rebase, where it is not small.
__attribute__((visibility("default"))) int kreiss_base(const kreiss_base_pass* asked, int64_t threads) {
  kreiss_base_pass pass = *asked;
  pass.threads = within(threads, panels_of(pass));
  if ((pass.job == KREISS_SCHUR || pass.job == KREISS_TURN) && is_moved(pass)) return 1;
  if (pass.job == KREISS_REBASE) return rebase(pass);
  if (pass.job == KREISS_TURN) std::memcpy(pass.matrix, pass.base, (size_t)(pass.n * pass.n) * (pass.is_double ? 8 : 4));
  if (pass.job == KREISS_SCHUR)
    for (int32_t phase : {KREISS_CORE, KREISS_CONJUGATE}) run_phase(pass, phase);
  if (pass.job == KREISS_SCHUR_BACK)
    for (int32_t phase : {KREISS_FROM_RIGHT, KREISS_FROM_LEFT, KREISS_COMMUTATOR}) run_phase(pass, phase);
  if (pass.job == KREISS_TURN_BACK) run_phase(pass, KREISS_TURNED);
  if (pass.grad_free) run_phase(pass, KREISS_SKEW);
  return 0;
}

__attribute__((visibility("default"))) void kreiss_multiply(const kreiss_product* job, int64_t threads) { multiply(*job, threads); }

// Whether products here are faster than those of torch: its library takes shorter vectors on processors of another maker.
__attribute__((visibility("default"))) int kreiss_is_fast() {
#if defined(KREISS_X86)
  return chosen.vector_bytes == 64 && !__builtin_cpu_is("intel");
#else
  return 0;
#endif
}

// The norm of all gradients (if wanted; else 0), and a step of the optimiser. Gradients in memory stay as they are.
__attribute__((visibility("default"))) double kreiss_move(const kreiss_moves* asked, int64_t threads) {
  kreiss_moves moves = *asked;
  int64_t chunks = 0;
  for (int64_t i = 0; i < moves.leaf_count; ++i) chunks += (moves.leaves[i].count + KREISS_CHUNK - 1) / KREISS_CHUNK;
  const Job job = {chosen.optim, &moves, chunks, within(threads, chunks)};
  double norm = 0;
  if (moves.wants_norm) {
    moves.updates = 0;
    if (chunks) run(job);
    for (int64_t i = 0; i < chunks; ++i) norm += moves.squares[i];
    norm = std::sqrt(norm);
  }
  if (!asked->updates) return norm;
  const double scale = moves.most / (norm + 1e-6);  // as torch.nn.utils.clip_grad_norm_; NaN stays NaN
  moves.scale = moves.most > 0 && !(scale >= 1) ? scale : 1;
  moves.updates = 1;
  for (int64_t i = 0; i < moves.leaf_count; ++i) *moves.leaves[i].step += 1;
  if (chunks) run(job);
  return norm;
}

// Returns 1, with nothing done, where a target is no class; else 0.
__attribute__((visibility("default"))) int kreiss_cross_entropy(const kreiss_entropy* asked, int64_t threads) {
  kreiss_entropy pass = *asked;
  int64_t count = 0;
  for (int64_t i = 0; i < pass.rows; ++i) {
    if (pass.targets[i] == pass.ignored) continue;
    if (pass.targets[i] < 0 || pass.targets[i] >= pass.classes) return 1;
    ++count;
  }
  const int64_t chunks = (pass.rows + KREISS_ROWS - 1) / KREISS_ROWS;
  std::vector<double> sums((size_t)chunks);
  pass.sums = sums.data();
  pass.weight = pass.mean && count ? 1.0 / (double)count : 1.0;
  if (chunks) run({chosen.entropy, &pass, chunks, within(threads, chunks)});
  double total = 0;
  for (const double sum : sums) total += sum;
  if (pass.mean) total /= (double)count;  // NaN without a target, as in torch
  if (pass.is_double)
    *(double*)pass.loss = total;
  else
    *(float*)pass.loss = (float)total;
  return 0;
}
}
