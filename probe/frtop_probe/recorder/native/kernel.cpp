/* The recorder's kernels in C++: what `recorder/ops/kernel.py` does, for ops on CPU tensors.
 *
 * They write the same ring (`ring/layout.py`). All that is needed once is Python's: descriptions of
 * groups, forms, lines (`install.py`); here are only tables of their numbers. Ops on devices go to
 * the Python kernel as a whole.
 *
 * Rules. No lock is held while the GIL is taken, Python or a handle is called, or a handle or a tensor
 * is freed: each may run the program's code, or wait for it. An exception of ours ends the recording,
 * never the op; an exception of the program passes, and so does the end of a thread (`pthread_exit`),
 * which glibc makes an exception that must not be caught. A forked child gets a new `State`, so no
 * lock is inherited. Nothing here is ever freed or unloaded: threads of a backend may still call back
 * while the interpreter ends.
 */
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/SmallVector.h>
#include <cxxabi.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif
#include <pthread.h>
#include <sys/mman.h>
#include <pybind11/pybind11.h>
#include <time.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <torch/library.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "frames.h"

#define SHOWN __attribute__((visibility("default")))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

SHOWN PyObject* THPVariable_Wrap(const at::TensorBase& tensor);
namespace torch::jit {
SHOWN pybind11::object toPyObject(c10::IValue value);
SHOWN c10::IValue toIValue(
    pybind11::handle object, const c10::TypePtr& type, std::optional<int32_t> count);
}  // namespace torch::jit

namespace {

namespace py = pybind11;
using c10::IValue;
using c10d::ProcessGroup;
using c10d::Work;
using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using i64 = int64_t;

// -- the ring, as `ring/layout.py` has it

struct Shape {
  u64 groups, groups_at, overflow, overflow_at, sizes_at, chunks, slots_at, slots, more, marks_at, marks;
};

struct Slot {
  u64 sequence;
  i64 issued;
  u64 number, thread;
  u32 group, form, site, timeout, party;
  u8 event, flags;
  u16 issuer;
  u64 sizes;
  u32 checksum;
  u8 later, reduce;
  u16 message;
  i64 done, wait;
};
static_assert(sizeof(Slot) == 88 && offsetof(Slot, checksum) == 64 && offsetof(Slot, done) == 72);

struct Mark {
  u64 sequence;
  i64 begun;
  u64 number, thread;
  u32 kind, name, checksum, unused;
  i64 end;
  u64 samples;  // or the bits of a value that the job reports
};
static_assert(sizeof(Mark) == 64 && offsetof(Mark, checksum) == 40);

enum Flag : u8 { SYNC = 1, P2P = 2, UNTRACKED = 4, LATE = 8, DEVICE = 16, ELSEWHERE = 64 };
enum Cell { HEAD = 3, STEP = 6, STEP_NS = 7, PENDING_LOST = 14, MARKS = 18, LONGER_FROM = 20 };
enum Row { ROW_LAST = 0, ROW_NUMBER = 1, ROW_P2P = 2, ROW_WORDS = 16 };
constexpr u64 CELLS_AT = 256, CHUNK = 64, SIZES_HEAD = 24;
constexpr u64 MAX_INTEGERS = (1 << 16) - 1, MAX_U32 = 0xffffffff, MESSAGES = (1 << 16) - 1;
constexpr u8 REDUCE_OPS = 9, REDUCE_OTHER = 10, EVENT_OP = 0;
constexpr i64 EXACT_NS = 1'000'000;
enum Kind : u32 { STEP_ENDED = 1, OPTIMIZER = 6, REPORT = 7 };
enum Enabled : u8 { OFF = 0, ON = 1, EXPECTING = 2 };

template <class T>
inline T get(const T* at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
template <class T>
inline void put(T* at, T value) { __atomic_store_n(at, value, __ATOMIC_RELEASE); }
inline void put_greater(u64* at, u64 value) {
  u64 was = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (was < value && !__atomic_compare_exchange_n(
      at, &was, value, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {}
}
inline i64 now_ns() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1'000'000'000LL + time.tv_nsec;
}
inline u64 mix(u64 hash, u64 value) {
  hash = (hash ^ value) * 0x9FB21C651E98DF25ULL;
  return hash ^ (hash >> 32);
}

struct Spin {
  std::atomic_flag flag = ATOMIC_FLAG_INIT;
  bool try_lock() { return !flag.test_and_set(std::memory_order_acquire); }
  void lock() { while (!try_lock()) sched_yield(); }
  void unlock() { flag.clear(std::memory_order_release); }
};
using Locked = std::lock_guard<Spin>;

struct Crc {  // CRC-32 as in zlib, eight bytes at a time
  u32 table[8][256];
  Crc() {
    for (u32 i = 0; i < 256; i++) {
      u32 value = i;
      for (int bit = 0; bit < 8; bit++) value = value >> 1 ^ (value & 1 ? 0xEDB88320u : 0);
      table[0][i] = value;
    }
    for (u32 i = 0; i < 256; i++)
      for (int n = 1; n < 8; n++) table[n][i] = table[n - 1][i] >> 8 ^ table[0][table[n - 1][i] & 255];
  }
  u32 of(const void* data, size_t size, u32 before = 0) const {
    auto at = static_cast<const u8*>(data);
    u32 value = ~before;
    for (; size >= 8; size -= 8, at += 8) {
      u32 low, high;
      memcpy(&low, at, 4);
      memcpy(&high, at + 4, 4);
      low ^= value;
      value = table[7][low & 255] ^ table[6][low >> 8 & 255] ^ table[5][low >> 16 & 255] ^
              table[4][low >> 24] ^ table[3][high & 255] ^ table[2][high >> 8 & 255] ^
              table[1][high >> 16 & 255] ^ table[0][high >> 24];
    }
    for (; size; size--, at++) value = table[0][(value ^ *at) & 255] ^ value >> 8;
    return ~value;
  }
};
const Crc crc;

#ifdef __x86_64__
/* The same of the 64 bytes of a slot, without tables that are in no cache. By carry-less
 * multiplication: "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ", Intel, 2009. */
__attribute__((target("pclmul,sse4.1"))) u32 sum_of_64(const void* from) {
  auto at = static_cast<const __m128i*>(from);
  const __m128i fold = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0), low = _mm_set_epi32(0, -1, 0, -1);
  const __m128i last = _mm_set_epi64x(0, 0x163cd6124), barrett = _mm_set_epi64x(0x1f7011641, 0x1db710641);
  __m128i sum = _mm_xor_si128(_mm_loadu_si128(at), _mm_cvtsi32_si128(-1));
  for (int i = 1; i < 4; i++) {
    __m128i folded = _mm_xor_si128(_mm_clmulepi64_si128(sum, fold, 0x00), _mm_clmulepi64_si128(sum, fold, 0x11));
    sum = _mm_xor_si128(folded, _mm_loadu_si128(at + i));
  }
  sum = _mm_xor_si128(_mm_srli_si128(sum, 8), _mm_clmulepi64_si128(sum, fold, 0x10));
  sum = _mm_xor_si128(_mm_srli_si128(sum, 4), _mm_clmulepi64_si128(_mm_and_si128(sum, low), last, 0x00));
  __m128i times = _mm_and_si128(_mm_clmulepi64_si128(_mm_and_si128(sum, low), barrett, 0x10), low);
  return ~u32(_mm_extract_epi32(_mm_xor_si128(sum, _mm_clmulepi64_si128(times, barrett, 0x00)), 1));
}
const bool multiplies = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#else
constexpr bool multiplies = false;
u32 sum_of_64(const void*) { return 0; }
#endif
inline u32 sum_of(const Slot& slot) {
  return multiplies ? sum_of_64(&slot) : crc.of(&slot, offsetof(Slot, checksum));
}

// -- what is kept beside the ring

/* Never freed: REST_NS after it is gone, when no op still counts in it, it becomes another. */
struct Group {
  std::atomic<u32> id{0};
  std::atomic<u64> number{0}, p2p{0};
  std::atomic<u64> no_future{0};  // ops, by bit, whose handles have none here
  Spin lock;
  std::unordered_map<u64, u32> channels;  // messages by op, peer and tag; LOST once one failed
};
constexpr u32 LOST = 0xffffffff;
constexpr i64 REST_NS = 60'000'000'000;
/* Tables by hash take its upper bits: the lowest of a hash of sizes is always set. */
constexpr size_t GROUPS = 4096, CHANNELS = 4096, KNOWN = 4096, SITES = 8192, MEASURED = 1024;
constexpr size_t HANDLE_PLACES = 4, WORKS = 8192, REFS = 4096, MOST_TESTED = 4096, MOST_REFS = 1024,
                 MOST_SEARCHED = 64;

static_assert(KNOWN == 1 << 12 && GROUPS == 1 << 12 && SITES == 1 << 13 && WORKS == 1 << 13);

struct Known {  // a form or sizes by hash; the version is odd while it is being written
  std::atomic<u32> version{0};
  std::atomic<u64> hash{0}, position{0};
  std::atomic<u32> form{0};
};
struct Site {
  std::atomic<u32> version{0};
  std::atomic<u64> code{0}, place{0};  // place: epoch of the codes, and the instruction
  std::atomic<u32> number{0};
};
struct GroupPlace {
  std::atomic<const void*> key{nullptr};  // torch's object; null once it is gone
  std::atomic<Group*> group{nullptr};     // null: never used, and a search ends here
};
struct Handle {  // which op a handle belongs to; an op that has ended gives its place to another
  Spin lock;
  std::atomic<const void*> work{nullptr};
  u64 sequence = 0;
};
struct Tested {  // a handle that has to be asked whether its op is complete
  c10::weak_intrusive_ptr<Work> work;
  c10::intrusive_ptr<Work> held;  // null if it does not even tell that: its end is all we see
  u64 sequence;
  u32 group;
  bool sync;
};
struct Ref {  // of a tensor; its storage is only compared
  bool output;
  const void* storage;
  c10::weak_intrusive_ptr<c10::TensorImpl> tensor;
};
/* Few are inside: what is kept for long between a program's own short-lived memory keeps that apart. */
using Tensors = c10::SmallVector<Ref, 2>;
struct Refs {
  Spin lock;
  std::atomic<u64> sequence{0};  // written with the lock; `find_writer` skips most without it
  Tensors tensors;
};

struct State {  // first what every op reads, in two lines of a cache
  u8* base;
  Shape shape;
  const u8* enabled;
  u64* cells;
  std::atomic<u64> sequence{0}, chunks{0}, floor{0}, marks{0};
  std::atomic<u32> tested_count{0}, tested_turn{0}, overflow_count{0};
  GroupPlace groups[GROUPS];
  std::atomic<Group*> by_id[GROUPS]{};
  Known forms[KNOWN], sizes[KNOWN];
  Site sites[SITES];
  std::atomic<u64> measured[MEASURED]{};  // by op: wait << 17 | exact << 16 | site
  Handle handles[WORKS];
  Refs refs[REFS];
  Spin groups_lock, tested_lock, overflow_lock;
  std::vector<Tested> tested;
  std::vector<std::atomic<u64>> spilled;  // by row of our part of the overflow; under its lock
  u64 spilled_until = 1, oldest = 1;
  std::unordered_map<u32, Group*> more_groups;  // this and the next one: under groups_lock
  std::deque<std::pair<i64, u32>> gone_groups;  // since when, and which, earliest first
  std::atomic<const char*> failure{nullptr};

  State(u8* ring, const Shape& of, const u8* flag)
      : base(ring), shape(of), enabled(flag), cells(reinterpret_cast<u64*>(ring + CELLS_AT)),
        spilled(of.overflow / 2) {
    tested.reserve(64);
  }
  Slot* slot(u64 sequence) const {
    u64 from = get(cells + LONGER_FROM);
    u64 at = from && sequence >= from ? shape.slots + sequence % shape.more
                                      : sequence % shape.slots;
    return reinterpret_cast<Slot*>(base + shape.slots_at) + at;
  }
  Mark* mark(u64 sequence) const {
    return reinterpret_cast<Mark*>(base + shape.marks_at) + sequence % shape.marks;
  }
  Slot* row(size_t index) const {
    return reinterpret_cast<Slot*>(base + shape.overflow_at) + index;
  }
  u64* group_row(u32 group) const {
    if (group >= shape.groups) return nullptr;
    return reinterpret_cast<u64*>(base + shape.groups_at) + u64(group) * ROW_WORDS;
  }
  void fail(const char* what, const std::exception& error) {
    std::string text = std::string(what) + ": " + error.what();
    failure.store(strdup(text.substr(0, text.find('\n')).c_str()));
    __atomic_store_n(const_cast<u8*>(enabled), u8(OFF), __ATOMIC_RELEASE);
  }
};
std::atomic<State*> current{nullptr};

/* Zeros, never freed, in one large page: after a step's arithmetic the tables are in no cache, and to
 * find each of their small pages again takes longer than to load from it. */
u8* tables() {
  constexpr size_t LARGE = 2 << 20;
  static_assert(FRTOP_CODES_SIZE + sizeof(State) <= LARGE);
  void* got = mmap(nullptr, 2 * LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (got == MAP_FAILED) throw std::bad_alloc();
  auto at = reinterpret_cast<u8*>((u64(got) + LARGE - 1) / LARGE * LARGE);
  madvise(at, LARGE, MADV_HUGEPAGE);
  return at;
}
struct Waiting {
  State* state;
  u64 sequence;
};
thread_local Waiting waiting_for{};  // this thread's last op whose call waits and shows no end
struct Called {
  u64 sequence;
  i64 returned;
};
thread_local Called last_silent{};  // this thread's last op that reports no end, and when its call returned

/* The Python side: `install.py` says what each does. Lists and dicts are only asked for their size,
 * which is one word, so that an op needs no GIL to learn that nobody wants more of it. */
struct Misses {
  PyObject *group, *form, *classify, *site, *issuer, *watch, *handed, *at_op, *device;
  PyObject *issuers, *watching, *unfinished, *device_handles, *handles;
  PyObject** sites_on;  // the only entry of a list
};
Misses misses{};
inline bool listed(PyObject* list) { return __atomic_load_n(&((PyVarObject*)list)->ob_size, __ATOMIC_RELAXED) > 0; }
inline bool filled(PyObject* dict) { return __atomic_load_n(&((PyDictObject*)dict)->ma_used, __ATOMIC_RELAXED) > 0; }
/* Loads what the next op reads and writes, all at once. After a step's arithmetic it is in no cache. */
inline void prefetch(State* state) {
  u64 next = state->sequence.load(std::memory_order_relaxed) + 1;
  auto slot = reinterpret_cast<const u8*>(state->slot(next));
  auto refs = reinterpret_cast<const u8*>(&state->refs[next % REFS]);
  for (const void* one : {slot, slot + sizeof(Slot) - 1, refs, refs + sizeof(Refs) - 1})
    __builtin_prefetch(one, 1);
  __builtin_prefetch(state->cells + HEAD, 1);
  __builtin_prefetch(&((PyVarObject*)misses.issuers)->ob_size);
  __builtin_prefetch(&((PyVarObject*)misses.watching)->ob_size);
  __builtin_prefetch(misses.sites_on);
}
inline bool sites_on() { return *misses.sites_on == Py_True; }

py::object call(PyObject* function, py::tuple args) {
  auto result = py::reinterpret_steal<py::object>(PyObject_CallObject(function, args.ptr()));
  if (!result) throw py::error_already_set();
  return result;
}

// -- completion

inline bool is_pending(const Slot* slot, u64 sequence) {
  return get(&slot->sequence) == sequence && !get(&slot->done) && !(get(&slot->later) & UNTRACKED);
}

/* Not of an op on a device, or of a pseudo-op: those are Python's. */
inline bool is_ours(const Slot* slot) { return slot->event == EVENT_OP && !(slot->flags & DEVICE); }

void drop_refs(State* state, u64 sequence) {
  Refs& refs = state->refs[sequence % REFS];
  Tensors dropped;  // destroyed without the lock: that may free a tensor
  Locked lock(refs.lock);
  if (refs.sequence != sequence) return;
  refs.sequence = 0;
  dropped = std::move(refs.tensors);
}

/* Writes `done` once: also where a callback, a wait and a test find the end at the same time. */
bool write_done(Slot* slot, i64 done) {
  i64 none = 0;
  return __atomic_compare_exchange_n(&slot->done, &none, done, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

/* Ends the copy of an op, after its slot: `spill` looks at the slot again once it has copied it. */
void end_row(State* state, u64 sequence) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!state->overflow_count.load()) return;
  Locked lock(state->overflow_lock);
  for (size_t i = 0; i < state->spilled.size(); i++) {
    if (state->spilled[i].load() != sequence) continue;
    put(&state->row(i)->done, now_ns());
    state->spilled[i].store(0);
    state->overflow_count--;
  }
}

/* Writes the end of an op: `done` is negative if it failed. */
void end(State* state, u64 sequence, i64 done, u8 flags, bool exact) {
  __builtin_prefetch(state->slot(sequence), 1);
  __builtin_prefetch(&state->measured[sequence % MEASURED], 1);
  drop_refs(state, sequence);  // first: whoever sees the end may want the tensors without references
  Slot* slot = state->slot(sequence);
  if (is_pending(slot, sequence)) {
    if (flags) __atomic_fetch_or(&slot->later, flags, __ATOMIC_RELAXED);
    u64 wait = u64(done - slot->issued);
    u32 site = slot->site;
    if (get(&slot->sequence) == sequence && write_done(slot, done) && done > 0 && site < 1 << 16 &&
        wait < 1ULL << 47)
      state->measured[sequence % MEASURED].store(wait << 17 | u64(exact) << 16 | site, std::memory_order_relaxed);
  }
  end_row(state, sequence);
}

void untrack(State* state, u64 sequence, i64 ended) {
  Slot* slot = state->slot(sequence);
  if (is_pending(slot, sequence)) {
    __atomic_fetch_or(&slot->later, u8(UNTRACKED), __ATOMIC_RELEASE);
    if (ended) write_done(slot, ended);
  }
  end_row(state, sequence);
  drop_refs(state, sequence);
}

bool is_spilled(State* state, u64 sequence) {
  if (!state->overflow_count.load()) return false;
  for (auto& one : state->spilled)
    if (one.load() == sequence) return true;
  return false;
}

bool is_open(State* state, u64 sequence) {
  return is_pending(state->slot(sequence), sequence) || is_spilled(state, sequence);
}

/* Whether no op will take its slot soon, because the ring was made longer. */
bool stays(State* state, u64 sequence, u64 head) {
  u64 from = get(state->cells + LONGER_FROM), slots = state->shape.slots;
  if (!from) return false;
  if (sequence < from) return sequence + slots >= from;
  return head - sequence < state->shape.more - slots;
}

/* Copies ops that newer ones would soon overwrite; `ops/kernel.py`'s ops are copied by `pending.py`. */
void spill(State* state) {
  std::unique_lock<Spin> lock(state->overflow_lock, std::try_to_lock);
  if (!lock) return;
  u64 head = get(state->cells + HEAD), slots = state->shape.slots;
  u64 until = head > slots / 2 ? head - slots / 2 : 1;
  u64 held = get(state->cells + LONGER_FROM) ? std::max(slots, state->shape.more) : slots;
  if (until > state->spilled_until + held) state->spilled_until = until - held;
  for (; state->spilled_until < until; state->spilled_until++) {
    u64 sequence = state->spilled_until;
    Slot* slot = state->slot(sequence);
    if (!is_pending(slot, sequence) || !is_ours(slot)) continue;
    size_t index = 0;
    while (index < state->spilled.size() && state->spilled[index].load()) index++;
    if (index == state->spilled.size()) {
      if (stays(state, sequence, head)) return;  // later, perhaps there is room then
      __atomic_fetch_add(state->cells + PENDING_LOST, 1, __ATOMIC_RELAXED);
      continue;
    }
    // Readers take a row without an end for a pending op: the end comes last.
    Slot* row = state->row(index);
    memcpy(row, slot, offsetof(Slot, done));
    put(&row->wait, get(&slot->wait));
    state->spilled[index].store(sequence);
    state->overflow_count++;
    put(&row->done, i64(0));
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (is_pending(slot, sequence)) continue;
    put(&row->done, now_ns());  // it ended during the copy, or is overwritten
    state->spilled[index].store(0);
    state->overflow_count--;
  }
}

/* Asks a handle; one of the program may raise, and a thread may be ended while it waits for the GIL. */
bool is_complete(Work* work) {
  try {
    return work->isCompleted();
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    return false;
  }
}

/* Takes handles that have to be asked: all of them, or two in their turn. */
std::vector<Tested> take_tested(State* state, bool all) {
  std::vector<Tested> taken;
  std::unique_lock<Spin> lock(state->tested_lock, std::defer_lock);
  if (all) lock.lock();
  else if (!lock.try_lock()) return taken;
  size_t count = state->tested.size();
  if (all) {
    taken.swap(state->tested);
  } else {
    for (size_t n = 0; n < 2 && count; n++, count--) {
      size_t at = state->tested_turn++ % count;
      std::swap(state->tested[at], state->tested.back());
      taken.push_back(std::move(state->tested.back()));
      state->tested.pop_back();
    }
  }
  state->tested_count.store(u32(state->tested.size()));
  return taken;
}

/* Tests handles that report no end by themselves. No lock is held: handles may be the program's. */
void test_handles(State* state, bool all) {
  std::vector<Tested> taken = take_tested(state, all), open;
  i64 now = now_ns();
  for (Tested& one : taken) {
    if (!is_open(state, one.sequence)) continue;
    auto work = one.held ? one.held : one.work.lock();
    if (!work) {
      one.sync ? end(state, one.sequence, now, LATE, false) : untrack(state, one.sequence, now);
      continue;
    }
    if (is_complete(work.get())) end(state, one.sequence, now, LATE, false);
    else open.push_back(std::move(one));
  }
  if (open.empty()) return;
  Locked lock(state->tested_lock);
  for (Tested& one : open) state->tested.push_back(std::move(one));
  state->tested_count.store(u32(state->tested.size()));
}

/* Drops the handle of an op that has ended: its tensors live no longer than the program's handle. */
void forget_handle(State* state, u64 sequence) {
  if (!state->tested_count.load()) return;
  std::optional<Tested> dropped;  // destroyed without the lock
  Locked lock(state->tested_lock);
  for (size_t i = state->tested.size(); i--;) {
    if (state->tested[i].sequence != sequence) continue;
    dropped.emplace(std::move(state->tested[i]));
    state->tested.erase(state->tested.begin() + i64(i));
    break;
  }
  state->tested_count.store(u32(state->tested.size()));
}

/* A handle may be in any of a few places; see `find_handle`. */
inline Handle& handle_place(State* state, const void* work, size_t n) {
  return state->handles[(((u64(work) >> 4) * 0x9E3779B97F4A7C15ULL >> 51) + n) % WORKS];
}
inline void note_handle(State* state, const void* work, u64 sequence) {
  for (size_t n = 0; n <= HANDLE_PLACES; n++) {
    Handle& handle = handle_place(state, work, n % HANDLE_PLACES);  // where all are open: the first
    Locked lock(handle.lock);
    if (n < HANDLE_PLACES && handle.work.load() != work && handle.work.load() && is_open(state, handle.sequence))
      continue;
    handle.work.store(work);
    handle.sequence = sequence;
    return;
  }
}
inline void drop_handle(State* state, const void* work) {
  for (size_t n = 0; n < HANDLE_PLACES; n++) {
    Handle& handle = handle_place(state, work, n);
    Locked lock(handle.lock);
    if (handle.work.load() == work) handle.work.store(nullptr);
  }
}
/* Which op a handle belongs to; 0: none. The handle is alive, so its address is its own; an earlier
 * one may have had it, for an op with a lower number. */
inline u64 find_handle(State* state, const void* work) {
  u64 sequence = 0;
  for (size_t n = 0; n < HANDLE_PLACES; n++) {
    Handle& handle = handle_place(state, work, n);
    if (handle.work.load(std::memory_order_relaxed) != work) continue;
    Locked lock(handle.lock);
    if (handle.work.load() == work) sequence = std::max(sequence, handle.sequence);
  }
  return sequence;
}

void follow(State* state, Group* group, u32 id, u64 bit, u64 sequence, bool sync,
            const c10::intrusive_ptr<Work>& work, bool silent) {
  note_handle(state, work.get(), sequence);
  if (!silent && !(group->no_future.load(std::memory_order_relaxed) & bit)) {
    try {
      work->getFuture()->addCallback(
          [state, sequence](c10::ivalue::Future& future) {
            i64 now = now_ns();
            end(state, sequence, future.hasError() ? -now : now, 0, true);
          },
          /*uses_future=*/false);
      return;
    } catch (py::error_already_set& error) {  // a handle in Python
      py::gil_scoped_acquire gil;
      if (!error.matches(PyExc_Exception)) throw;
      group->no_future.fetch_or(bit);
    } catch (const std::exception&) {
      group->no_future.fetch_or(bit);
    }
  }
  if (sync) waiting_for = {state, sequence};
  last_silent = {sequence, now_ns()};
  Tested added{c10::weak_intrusive_ptr<Work>(work), silent ? c10::intrusive_ptr<Work>() : work,
               sequence, id, sync};
  std::optional<Tested> oldest;  // destroyed without the lock
  {
    Locked lock(state->tested_lock);
    if (state->tested.size() >= MOST_TESTED) {
      oldest.emplace(std::move(state->tested.front()));
      state->tested.erase(state->tested.begin());
    }
    state->tested.push_back(std::move(added));
    state->tested_count.store(u32(state->tested.size()));
  }
  if (oldest) untrack(state, oldest->sequence, 0);
}

// -- an op: its signature, its slot, its place in the counts of its group

/* As `recorder/ops/operations.py` has it. */
struct Operation {
  int index, group, root, peer, tag, reduce, async_op, timeout, in_splits, out_splits, arguments;
  bool p2p, silent, barrier, always_sync;
  struct Argument { int position, depth; bool output; };
  std::vector<Argument> tensors;
};

struct Seen {
  u64 kinds, hash;
  bool cpu = true, meta = false;
};

inline void see(Seen& seen, const at::TensorImpl* tensor) {
  if (UNLIKELY(!tensor->is_cpu())) {
    seen.cpu = false;
    seen.meta |= tensor->is_meta();
  }
  auto sizes = tensor->sizes();
  u64 kind = u64(u8(c10::typeMetaToScalarType(tensor->dtype()))) << 8 | u8(tensor->device_type());
  seen.kinds = mix(seen.kinds, kind);
  seen.hash = mix(seen.hash, kind << 16 | sizes.size());
  for (i64 size : sizes) seen.hash = mix(seen.hash, u64(size));
}

inline void see(Seen& seen, const IValue& value) {
  if (value.isTensor()) return see(seen, value.unsafeToTensorImpl());
  if (!value.isList()) return;
  auto list = value.toListRef();
  seen.hash = mix(seen.hash, list.size() + 1);
  for (const IValue& one : list) see(seen, one);
}

/* Of integers, in four lanes that do not wait for each other: there may be a thousand. */
inline u64 hash_of(c10::ArrayRef<IValue> list) {
  u64 lanes[4] = {list.size(), 1, 2, 3};
  size_t i = 0;
  for (; i + 4 <= list.size(); i += 4)
    for (size_t n = 0; n < 4; n++) lanes[n] = mix(lanes[n], u64(list[i + n].toInt()));
  for (; i < list.size(); i++) lanes[0] = mix(lanes[0], u64(list[i].toInt()));
  return mix(mix(mix(lanes[0], lanes[1]), lanes[2]), lanes[3]);
}

template <class F>
inline void each_tensor(const IValue& value, const F& function) {
  if (value.isTensor()) return function(value.unsafeToTensorImpl());
  if (!value.isList()) return;
  for (const IValue& one : value.toListRef()) each_tensor(one, function);
}

/* The integers of an op, as `recorder/ops/signatures.encode` has them. */
void encode(const Operation& op, const IValue* args, std::vector<u64>& to) {
  to.clear();
  if (!op.barrier) {
    for (bool output : {false, true}) {
      std::vector<std::pair<c10::ScalarType, c10::Device>> kinds;
      size_t start = to.size(), last = 0;
      to.push_back(0);
      for (const auto& argument : op.tensors) {
        if (argument.output != output) continue;
        each_tensor(args[argument.position], [&](const at::TensorImpl* tensor) {
          std::pair kind{c10::typeMetaToScalarType(tensor->dtype()), tensor->device()};
          u64 index = std::find(kinds.begin(), kinds.end(), kind) - kinds.begin();
          if (index == kinds.size()) kinds.push_back(kind);
          auto sizes = tensor->sizes();
          bool same = last && to[last] == index && to[last + 2] == sizes.size();
          for (size_t i = 0; same && i < sizes.size(); i++) same = to[last + 3 + i] == u64(sizes[i]);
          if (same) {
            to[last + 1]++;
            return;
          }
          last = to.size();
          to[start]++;
          to.push_back(index);
          to.push_back(1);
          to.push_back(sizes.size());
          for (i64 size : sizes) to.push_back(u64(size));
        });
      }
      if (!to[start]) to.pop_back();
    }
  }
  if (op.in_splits >= 0) {
    for (int at : {op.in_splits, op.out_splits}) {
      auto list = args[at].toListRef();
      to.reserve(to.size() + list.size() + 1);
      to.push_back(list.size());
      for (const IValue& one : list) to.push_back(u64(one.toInt()));
    }
  }
  if (op.tag >= 0) to.push_back(u64(args[op.tag].toInt()));
}

/* Writes a record of sizes, as `ring/sizes.py` has it; returns its position, 0 if it is too long. */
u64 write_sizes(State* state, const std::vector<u64>& given) {
  std::vector<u8> record;
  if (given.empty() || given.size() > MAX_INTEGERS) return 0;
  u64 most = 0;
  for (u64 one : given) most |= one;
  const u8 width = most > MAX_U32 ? 8 : 4;
  u64 size = SIZES_HEAD + given.size() * width, count = (size + CHUNK - 1) / CHUNK;
  if (count > state->shape.chunks / 4) return 0;
  u64 first = state->chunks.fetch_add(count, std::memory_order_relaxed) + 1, last = first + count - 1;
  record.resize(size);
  u8* at = record.data();
  if (width == 8) {
    memcpy(at + SIZES_HEAD, given.data(), given.size() * 8);
  } else {
    auto to = reinterpret_cast<u32*>(at + SIZES_HEAD);
    for (size_t i = 0; i < given.size(); i++) to[i] = u32(given[i]);
  }
  u32 length = u32(given.size()), sum = crc.of(&first, 8);
  sum = crc.of(at + SIZES_HEAD, size - SIZES_HEAD, sum);
  memset(at, 0, SIZES_HEAD);
  memcpy(at, &first, 8);
  memcpy(at + 8, &sum, 4);
  memcpy(at + 12, &length, 4);
  at[16] = width;
  u64 whole = state->shape.chunks * CHUNK, begin = first % state->shape.chunks * CHUNK;
  u8* to = state->base + state->shape.sizes_at;
  u64 fits = std::min(size, whole - begin);
  memcpy(to + begin, at, fits);
  memcpy(to, at + fits, size - fits);
  u64 half = state->shape.chunks / 2, floor = state->floor.load(std::memory_order_relaxed);
  while (last > half && floor < last - half && !state->floor.compare_exchange_weak(floor, last - half)) {}
  return first;
}

inline bool find(Known* table, u64 hash, u32& form, u64& position) {
  Known& one = table[hash >> 52];
  u32 version = one.version.load(std::memory_order_acquire);
  bool same = one.hash.load(std::memory_order_relaxed) == hash;
  form = one.form.load(std::memory_order_relaxed);
  position = one.position.load(std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_acquire);
  return same && !(version & 1) && one.version.load(std::memory_order_relaxed) == version;
}

inline void keep(Known* table, u64 hash, u32 form, u64 position) {
  Known& one = table[hash >> 52];
  u32 version = one.version.load();
  if (version & 1 || !one.version.compare_exchange_strong(version, version + 1)) return;
  std::atomic_thread_fence(std::memory_order_release);  // nothing is seen before the odd version
  one.hash.store(hash, std::memory_order_relaxed);
  one.form.store(form, std::memory_order_relaxed);
  one.position.store(position, std::memory_order_relaxed);
  one.version.store(version + 2, std::memory_order_release);
}

py::tuple to_python(const IValue* args, int count) {
  py::tuple result(count);
  for (int i = 0; i < count; i++) result[i] = torch::jit::toPyObject(args[i]);
  return result;
}

inline const void* group_key(const IValue& group) {
  return group.toObjectRef().slots()[0].internalToPointer();
}
inline size_t group_place(const void* key) { return size_t(u64(key) >> 4) * 0x9E3779B97F4A7C15ULL >> 52; }

/* An object that is in no table: of a group that is gone, or a new one. With `groups_lock`. */
Group* spare_group(State* state) {
  auto& gone = state->gone_groups;
  while (!gone.empty() && now_ns() - gone.front().first >= REST_NS) {
    u32 id = gone.front().second;
    gone.pop_front();
    auto& at = state->by_id[id % GROUPS];
    Group* group = at.load();
    if (group && group->id == id) {
      at.store(nullptr);
      return group;
    }
    auto kept = state->more_groups.find(id);
    if (kept == state->more_groups.end()) continue;
    group = kept->second;
    state->more_groups.erase(kept);
    return group;
  }
  return new Group;
}

/* The group with a number, which is made if need be. */
Group* group_with(State* state, u32 id) {
  auto& at = state->by_id[id % GROUPS];
  Group* group = at.load(std::memory_order_acquire);
  if (LIKELY(group && group->id == id)) return group;
  Locked lock(state->groups_lock);
  group = at.load();
  if (group && group->id == id) return group;
  auto kept = state->more_groups.find(id);
  if (kept != state->more_groups.end()) return kept->second;
  Group* made = spare_group(state);
  made->number.store(0);
  made->p2p.store(0);
  made->no_future.store(0);
  {
    Locked held(made->lock);
    made->channels = {};
  }
  made->id.store(id);
  if (at.load()) state->more_groups[id] = made;  // more groups than places
  else at.store(made, std::memory_order_release);
  return made;
}

Group* add_group(State* state, const void* key, u32 id) {
  Group* group = group_with(state, id);
  Locked lock(state->groups_lock);
  GroupPlace* free = nullptr;
  for (size_t i = group_place(key), n = 0; n < GROUPS; i++, n++) {
    GroupPlace& at = state->groups[i % GROUPS];
    const void* there = at.key.load();
    if (there == key) {
      at.group.store(group);
      return group;
    }
    if (!there && !free) free = &at;
    if (!at.group.load()) break;
  }
  if (!free) return nullptr;
  free->group.store(group);
  free->key.store(key, std::memory_order_release);
  return group;
}

Group* find_group(State* state, const IValue& given) {
  const void* key = group_key(given);
  for (size_t i = group_place(key), n = 0; n < GROUPS; i++, n++) {
    GroupPlace& at = state->groups[i % GROUPS];
    if (at.key.load(std::memory_order_acquire) == key) return at.group.load(std::memory_order_acquire);
    if (!at.group.load(std::memory_order_relaxed)) break;
  }
  py::gil_scoped_acquire gil;
  auto id = call(misses.group, py::make_tuple(torch::jit::toPyObject(given))).cast<i64>();
  if (id < 0) return group_with(state, u32(-id));  // asked again at its next op
  return id ? add_group(state, key, u32(id)) : nullptr;
}

int classify(void* code) {
  py::gil_scoped_acquire gil;
  PyObject* kind = PyObject_CallOneArg(misses.classify, static_cast<PyObject*>(code));
  if (!kind) return -1;
  int number = int(PyLong_AsLong(kind));
  Py_DECREF(kind);
  return number;
}

u32 find_site(State* state, bool& waits) {
  u64 epoch = frtop_codes_epoch.load();  // before the frame is found, whose code is known since then
  frtop_frame frame;
  int found = frtop_find_frame(&frame, classify);
  if (found < 0) {
    py::gil_scoped_acquire gil;
    throw py::error_already_set();
  }
  waits = frame.waits;
  if (!found || !sites_on()) return 0;
  u64 code = u64(frame.code), place = epoch << 32 | u32(frame.instruction);
  Site& one = state->sites[mix(code, place) >> 51];
  u32 version = one.version.load(std::memory_order_acquire);
  bool same = one.code.load(std::memory_order_relaxed) == code &&
              one.place.load(std::memory_order_relaxed) == place;
  u32 number = one.number.load(std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (same && !(version & 1) && one.version.load(std::memory_order_relaxed) == version) return number;
  {
    py::gil_scoped_acquire gil;
    auto object = py::reinterpret_borrow<py::object>(static_cast<PyObject*>(frame.code));
    number = call(misses.site, py::make_tuple(object, frame.instruction)).cast<u32>();
  }
  version = one.version.load();
  if (number && !(version & 1) && one.version.compare_exchange_strong(version, version + 1)) {
    std::atomic_thread_fence(std::memory_order_release);
    one.code.store(code, std::memory_order_relaxed);
    one.place.store(place, std::memory_order_relaxed);
    one.number.store(number, std::memory_order_relaxed);
    one.version.store(version + 2, std::memory_order_release);
  }
  return number;
}

u16 count_message(Group* group, u64 channel) {
  Locked lock(group->lock);
  auto found = group->channels.find(channel);
  if (found == group->channels.end()) {
    if (group->channels.size() >= CHANNELS) return 0;
    found = group->channels.emplace(channel, 0).first;
  }
  if (found->second == LOST) return 0;
  u32 number = found->second + 1;
  found->second = number % MESSAGES;  // so it never comes to LOST
  return u16(number);
}

/* Stops counting, after a message was counted but never issued. */
void lose_count(Group* group, u64 channel) {
  Locked lock(group->lock);
  auto found = group->channels.find(channel);
  if (found != group->channels.end()) found->second = LOST;
}

/* Null for a sparse tensor and the like. */
inline const void* storage_of(const at::TensorImpl* tensor) {
  return tensor->unsafe_storage().unsafeGetStorageImpl();
}

/* Only the weak count of a tensor changes: the strong one may belong to its Python object. */
void hold_refs(State* state, const Operation& op, const IValue* args, u64 sequence) {
  Refs& refs = state->refs[sequence % REFS];
  Tensors dropped;  // destroyed without the lock: that may free a tensor
  Locked lock(refs.lock);
  if (refs.sequence) dropped = std::move(refs.tensors);
  refs.sequence = sequence;
  if (op.barrier) return;
  for (const auto& argument : op.tensors) {
    const IValue& given = args[argument.position];
    if (given.isList())
      refs.tensors.reserve(std::min(refs.tensors.size() + given.toListRef().size(), MOST_REFS));
    each_tensor(given, [&](at::TensorImpl* tensor) {
      if (refs.tensors.size() >= MOST_REFS) return;
      c10::raw::weak_intrusive_ptr::incref(tensor);
      refs.tensors.push_back({argument.output, storage_of(tensor),
                              c10::weak_intrusive_ptr<at::TensorImpl>::reclaim(tensor)});
    });
  }
}

struct Kernel final : c10::OperatorKernel {
  Operation op;
  u64 bit;
  explicit Kernel(Operation given) : op(std::move(given)), bit(1ULL << op.index % 64) {}

  static constexpr auto below =
      c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::BackendSelect);

  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    State* state = current.load(std::memory_order_acquire);
    u8 enabled = state ? __atomic_load_n(state->enabled, __ATOMIC_RELAXED) : u8(OFF);
    if (!enabled) return handle.redispatchBoxed(keys & below, stack);
    const IValue* args = stack->data() + stack->size() - op.arguments;
    Seen seen{u64(op.index), u64(op.index)};
    try {
      see(seen, args);
    } catch (const std::exception& error) {  // sizes that are symbolic, or nested
      state->fail("a native kernel could not read a tensor", error);
      return handle.redispatchBoxed(keys & below, stack);
    }
    // A tensor on `meta` has no contents, so nothing is communicated.
    if (UNLIKELY(seen.meta)) return handle.redispatchBoxed(keys & below, stack);
    if (UNLIKELY(!seen.cpu)) return on_device(state, keys, stack, args);

    prefetch(state);
    u64 sequence = 0, channel = 0;
    Group* group = nullptr;
    bool sync = false;
    py::object watched;
    i64 now = 0;
    u32 id = 0;  // `group` may have become another when a long op has ended
    try {
      if (UNLIKELY(enabled == EXPECTING)) {
        py::gil_scoped_acquire gil;
        call(misses.at_op, py::tuple());
      }
      sequence = write(state, args, seen, group, sync, channel, watched, now);
      if (group) id = group->id;
    } catch (const py::error_already_set&) {  // of the program: `install.py` keeps ours
      {
        py::gil_scoped_acquire gil;
        watched = py::object();
      }
      throw;
    } catch (const std::exception& error) {
      state->fail("a native kernel could not read an op", error);
    }
    try {
      handle.redispatchBoxed(keys & below, stack);
    } catch (...) {
      if (sequence) {
        end(state, sequence, -now_ns(), 0, true);
        if (channel && group->id == id) lose_count(group, channel);
      }
      release(watched);
      throw;
    }
    if (!sequence) return;
    try {
      auto work = returned(stack);
      if (work) {
        follow(state, group, id, bit, sequence, sync, work, op.silent);
      } else {
        end(state, sequence, now_ns(), 0, true);
      }
      if (UNLIKELY(watched && work)) {
        py::gil_scoped_acquire gil;
        call(misses.handed, py::make_tuple(watched, torch::jit::toPyObject(stack->back())));
      }
    } catch (const py::error_already_set&) {
      release(watched);
      untrack(state, sequence, now_ns());
      throw;
    } catch (const std::exception& error) {
      state->fail("a native kernel could not follow an op", error);
    }
    release(watched);
  }

  void see(Seen& seen, const IValue* args) const {
    if (op.barrier) {
      auto dummy = args[op.tensors[0].position].unsafeToTensorImpl();
      seen.cpu = dummy->is_cpu();
      return;
    }
    for (const auto& one : op.tensors) {
      seen.kinds = mix(seen.kinds, u64(one.output));
      ::see(seen, args[one.position]);
    }
  }

  /* The handle that the op returned, null if it has none. */
  c10::intrusive_ptr<Work> returned(torch::jit::Stack* stack) const {
    if (schema_returns.empty() || !stack->back().isObject()) return {};
    return stack->back().toCustomClass<Work>();
  }

  static void release(py::object& watched) {
    if (LIKELY(!watched)) return;
    py::gil_scoped_acquire gil;
    watched = py::object();
  }

  u64 write(State* state, const IValue* args, Seen& seen, Group*& group, bool& sync, u64& channel,
            py::object& watched, i64& now) const {
    now = now_ns();
    u64 thread = u64(pthread_self());
    if (UNLIKELY(waiting_for.sequence)) {
      u64 sequence = std::exchange(waiting_for.sequence, 0);
      if (waiting_for.state == state && is_open(state, sequence)) {
        end(state, sequence, now, LATE, false);
        forget_handle(state, sequence);
      }
    }
    if (UNLIKELY(state->tested_count.load(std::memory_order_relaxed))) test_handles(state, false);
    group = find_group(state, args[op.group]);
    if (!group) return 0;

    Slot slot{};
    if (op.in_splits >= 0) {
      for (int at : {op.in_splits, op.out_splits}) {
        seen.hash = mix(seen.hash, hash_of(args[at].toListRef()));
      }
    }
    i64 tag = op.tag >= 0 ? args[op.tag].toInt() : 0;
    if (op.tag >= 0) seen.hash = mix(seen.hash, u64(tag));
    seen.hash |= 1;
    __builtin_prefetch(&state->sizes[seen.hash >> 52]);
    __builtin_prefetch(state->group_row(group->id), 1);
    bool waits = false;
    slot.site = find_site(state, waits);
    u64 position = 0;
    u32 form = 0;
    if (!find(state->sizes, seen.hash, form, position) ||
        (position && position < state->floor.load(std::memory_order_relaxed))) {
      u64 unused;
      if (!find(state->forms, seen.kinds |= 1, form, unused)) {
        py::gil_scoped_acquire gil;
        auto given = py::make_tuple(op.index, to_python(args, op.arguments));
        form = call(misses.form, given).template cast<u32>();
        keep(state->forms, seen.kinds, form, 0);
      }
      std::vector<u64> integers;
      encode(op, args, integers);
      position = write_sizes(state, integers);
      keep(state->sizes, seen.hash, form, position);
    }
    i64 party = op.peer >= 0 ? args[op.peer].toInt() + 1 : op.root >= 0 ? args[op.root].toInt() + 1 : 0;
    if (op.p2p) {
      sync = waits;
      slot.flags = P2P | (sync ? SYNC : 0);
      channel = mix(mix(u64(op.index) + 1, u64(party)), u64(tag));
    } else {
      sync = op.always_sync || (op.async_op >= 0 && !args[op.async_op].toBool());
      slot.flags = sync ? SYNC : 0;
    }
    if (UNLIKELY(listed(misses.issuers))) {
      py::gil_scoped_acquire gil;
      auto given = py::make_tuple(thread, slot.site, op.index, to_python(args, op.arguments));
      slot.issuer = u16(call(misses.issuer, given).template cast<u32>());
    }
    i64 timeout = op.timeout >= 0 ? args[op.timeout].toInt() : 0;
    slot.issued = now;
    slot.thread = thread;
    slot.group = group->id;
    slot.form = form;
    slot.timeout = timeout > 0 && timeout <= i64(MAX_U32) ? u32(timeout) : 0;
    slot.party = party > 0 && party <= i64(MAX_U32) ? u32(party) : 0;
    slot.event = EVENT_OP;
    slot.sizes = position;
    if (op.reduce >= 0) {
      auto reduce = static_cast<const c10d::ReduceOp*>(group_key(args[op.reduce]))->op_;
      slot.reduce = u8(reduce) < REDUCE_OPS ? u8(reduce) + 1 : REDUCE_OTHER;
    }
    // From here on nothing fails, so that each number belongs to an op.
    if (op.p2p) slot.message = count_message(group, channel);
    slot.number = (op.p2p ? group->p2p : group->number).fetch_add(1, std::memory_order_relaxed) + 1;
    slot.sequence = state->sequence.fetch_add(1, std::memory_order_relaxed) + 1;
    slot.checksum = sum_of(slot);
    hold_refs(state, op, args, slot.sequence);
    Slot* to = state->slot(slot.sequence);
    // This thread may have stood still while others filled the whole history: theirs is newer.
    if (LIKELY(get(&to->sequence) < slot.sequence)) memcpy(to, &slot, sizeof slot);
    if (u64* row = state->group_row(group->id)) {
      put_greater(row + (op.p2p ? ROW_P2P : ROW_NUMBER), slot.number);
      put_greater(row + ROW_LAST, slot.sequence);
    }
    put_greater(state->cells + HEAD, slot.sequence);
    if (UNLIKELY(slot.sequence % (state->shape.slots / 8) == 0)) spill(state);
    if (UNLIKELY(listed(misses.watching))) {
      py::gil_scoped_acquire gil;
      auto given = py::make_tuple(op.index, to_python(args, op.arguments), group->id, slot.number,
                                  slot.site, slot.flags, slot.issuer, slot.message);
      try {
        auto result = call(misses.watch, given);
        if (!result.is_none()) watched = std::move(result);
      } catch (const py::error_already_set&) {  // the op is never issued
        end(state, slot.sequence, -now, 0, true);
        throw;
      }
    }
    return slot.sequence;
  }

  /* Passes the op to the Python kernel, which passes it on to the backend. */
  void on_device(State* state, c10::DispatchKeySet keys, torch::jit::Stack* stack, const IValue* args) const {
    std::vector<IValue> results;
    {
      py::gil_scoped_acquire gil;
      auto given = py::make_tuple(op.index, keys.raw_repr(), to_python(args, op.arguments));
      auto result = call(misses.device, given);
      const auto& returns = schema_returns;
      if (returns.size() == 1) {
        results.push_back(torch::jit::toIValue(result, returns[0], std::nullopt));
      } else if (!returns.empty()) {
        auto several = result.cast<py::tuple>();
        for (size_t i = 0; i < returns.size(); i++)
          results.push_back(torch::jit::toIValue(several[i], returns[i], std::nullopt));
      }
    }
    torch::jit::drop(*stack, op.arguments);
    for (IValue& one : results) stack->push_back(std::move(one));
    if (auto work = returned(stack)) drop_handle(state, work.get());  // not an earlier op's
  }

  std::vector<c10::TypePtr> schema_returns;
};

// -- waits

/* In place of a handle's `wait`. `both` has torch's own and the wrapper of `waits.py`, which is
 * needed for ops on devices, for values that are sampled, and for handles made in Python. */
PyTypeObject* bound_types[16];
std::atomic<int> bound_count{0};

void write_wait(State* state, u64 sequence, i64 value) {
  Slot* slot = state->slot(sequence);
  if (get(&slot->sequence) == sequence) put(&slot->wait, value);
  if (!state->overflow_count.load()) return;
  Locked lock(state->overflow_lock);
  for (size_t i = 0; i < state->spilled.size(); i++)
    if (state->spilled[i].load() == sequence) put(&state->row(i)->wait, value);
}

/* A wait of this thread for an op: writes when it began, and the op's end if the wait shows it. */
struct Wait {
  State* const state;
  const u64 sequence;
  Slot* const slot;
  const bool open;
  const i64 begun;
  /* `of` is the op's sequence number, 0 if it is not known. */
  Wait(State* in, u64 of)
      : state(in), sequence(of), slot(of ? in->slot(of) : nullptr), open(slot && is_open(in, of)), begun(now_ns()) {
    // The first wait is written also where it comes after the end.
    if (!open && (!slot || get(&slot->sequence) != sequence || get(&slot->wait))) return;
    write_wait(state, sequence, begun);
    if (get(&slot->sequence) == sequence && slot->thread != u64(pthread_self()))
      __atomic_fetch_or(&slot->later, u8(ELSEWHERE), __ATOMIC_RELAXED);
  }
  /* `failed`: it raised; `complete`: the op is over. */
  void returned(bool failed, bool complete) const {
    if (!open) return;
    i64 now = now_ns();
    if (waiting_for.sequence == sequence) waiting_for = {};
    if (!complete && is_open(state, sequence)) return write_wait(state, sequence, -now);
    // Its own callback has written the end, or there is none and the wait shows it: exactly, if the
    // thread waited for anything, or had nothing else to do since the call, however long that took.
    if (is_open(state, sequence)) {
      i64 since = last_silent.sequence == sequence ? last_silent.returned : slot->issued;
      bool at_once = slot->flags & SYNC || begun - since <= EXACT_NS;
      bool late = !failed && !at_once && now - begun < EXACT_NS;
      end(state, sequence, failed ? -now : late ? begun : now, late ? LATE : 0, !late);
    }
    forget_handle(state, sequence);
  }
  /* It was no wait for this op: takes back when it began. */
  void was_none() const {
    if (get(&slot->sequence) == sequence && get(&slot->wait) == begun) write_wait(state, sequence, 0);
  }
};

/* As `is_complete`, while the exception of a wait is set. */
bool ended(Work* work) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  bool result = is_complete(work);
  PyErr_Restore(type, value, trace);
  return result;
}

PyObject* wait(PyObject* both, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  PyObject *own = PyTuple_GET_ITEM(both, 0), *wrapper = PyTuple_GET_ITEM(both, 1);
  State* state = current.load(std::memory_order_acquire);
  if (!state || !__atomic_load_n(state->enabled, __ATOMIC_RELAXED) || PyVectorcall_NARGS(count) < 1)
    return PyObject_Vectorcall(own, args, size_t(count), names);
  bool bound = false;
  for (int i = 0; i < bound_count.load(std::memory_order_relaxed); i++)
    bound |= Py_TYPE(args[0]) == bound_types[i];
  bool more = !bound || filled(misses.unfinished) || filled(misses.device_handles);
  Work* work = nullptr;
  u64 sequence = 0;
  if (bound) {
    auto object = reinterpret_cast<py::detail::instance*>(args[0]);
    const void* held = object->simple_layout ? object->simple_value_holder[0] : nullptr;
    if (held && (sequence = find_handle(state, held))) work = static_cast<Work*>(const_cast<void*>(held));
  }
  Wait waited(state, sequence);
  PyObject* result = PyObject_Vectorcall(more ? wrapper : own, args, size_t(count), names);
  waited.returned(!result, result || (waited.open && ended(work)));
  return result;
}
PyMethodDef wait_method{"wait", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)(void)>(wait)),
                        METH_FASTCALL | METH_KEYWORDS, nullptr};

/* The newest pending op, of the last few, that writes to a storage: of its outputs, if it has any, else
 * of all its tensors. 0: there is none. Messages are none: functional collectives send none. */
u64 find_writer(State* state, const void* storage) {
  u64 head = get(state->cells + HEAD);
  for (u64 sequence = head; storage && sequence && head - sequence < MOST_SEARCHED; sequence--) {
    Refs& refs = state->refs[sequence % REFS];
    if (refs.sequence.load(std::memory_order_relaxed) != sequence) continue;
    const Slot* slot = state->slot(sequence);
    if (get(&slot->sequence) == sequence && slot->flags & P2P) continue;
    Locked lock(refs.lock);
    if (refs.sequence != sequence) continue;
    bool has_outputs = false, is_output = false, is_there = false;
    for (const Ref& one : refs.tensors) {
      bool same = one.storage == storage;
      has_outputs |= one.output;
      is_output |= one.output && same;
      is_there |= same;
    }
    if (has_outputs ? is_output : is_there) return sequence;
  }
  return 0;
}

/* Whether a wait in C++ that has returned was for this op. If it has a callback, that writes the end. */
bool was_for(State* state, u64 sequence, bool at_once) {
  c10::intrusive_ptr<Work> work;  // destroyed without the lock
  bool silent = false;
  {
    Locked lock(state->tested_lock);
    size_t at = 0;
    while (at < state->tested.size() && state->tested[at].sequence != sequence) at++;
    if (at == state->tested.size()) return false;
    const Tested& one = state->tested[at];
    silent = !one.held;
    work = silent ? one.work.lock() : one.held;
  }
  // Torch drops its handle with the wait; where the program has one, too, it may be another op's wait.
  return !work || is_complete(work.get()) || (silent && !at_once);
}

/* `wait_tensor`: C++ waits there for functional collectives, those of DTensor and compiled graphs. For
 * any other tensor it returns at once, although an op of the program may be writing to that. */
struct TensorWait final : c10::OperatorKernel {
  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    State* state = current.load(std::memory_order_acquire);
    u64 sequence = 0;
    if (state && __atomic_load_n(state->enabled, __ATOMIC_RELAXED) && stack->back().isTensor())
      sequence = find_writer(state, storage_of(stack->back().unsafeToTensorImpl()));
    if (!sequence) return handle.redispatchBoxed(keys & Kernel::below, stack);
    Wait waited(state, sequence);
    try {
      handle.redispatchBoxed(keys & Kernel::below, stack);
    } catch (...) {
      waited.returned(true, false);
      throw;
    }
    bool at_once = now_ns() - waited.begun < EXACT_NS;
    if (!waited.open || !is_open(state, sequence) || was_for(state, sequence, at_once))
      return waited.returned(false, true);
    if (at_once) waited.was_none();
  }
};

// -- marks, as `marks/marks.py` writes them

u64 write_mark(u32 kind, u64 number, bool lasts, u32 name = 0, const double* value = nullptr) {
  State* state = current.load(std::memory_order_acquire);
  Mark mark{state->marks.fetch_add(1) + 1, now_ns(), number, u64(pthread_self()), kind, name, 0, 0, 0, 0};
  mark.checksum = crc.of(&mark, offsetof(Mark, checksum));
  if (value) {
    memcpy(&mark.samples, value, sizeof mark.samples);
    mark.checksum = crc.of(value, sizeof *value, mark.checksum);
  }
  if (!lasts) mark.end = mark.begun;
  memcpy(state->mark(mark.sequence), &mark, sizeof mark);
  put_greater(state->cells + MARKS, mark.sequence);
  return mark.sequence;
}

PyObject* write_mark(PyObject* const* args, Py_ssize_t count, bool lasts) {
  long kind = count == 2 ? PyLong_AsLong(args[0]) : 0;
  long number = count == 2 ? PyLong_AsLong(args[1]) : 0;
  if (count != 2) PyErr_SetString(PyExc_TypeError, "a mark has a kind and a number");
  if (PyErr_Occurred()) return nullptr;
  return PyLong_FromUnsignedLongLong(write_mark(u32(kind), u64(number), lasts));
}
PyObject* begin_mark(PyObject*, PyObject* const* args, Py_ssize_t count) { return write_mark(args, count, true); }
PyObject* instant_mark(PyObject*, PyObject* const* args, Py_ssize_t count) { return write_mark(args, count, false); }
PyObject* report_mark(PyObject*, PyObject* args) {
  long step;
  unsigned int name;
  double value;
  if (!PyArg_ParseTuple(args, "lId", &step, &name, &value)) return nullptr;
  write_mark(REPORT, u64(step), false, name, &value);
  Py_RETURN_NONE;
}
void end_mark(State* state, u64 sequence) {
  Mark* mark = state->mark(sequence);
  if (get(&mark->sequence) == sequence) put(&mark->end, now_ns());  // else it has been overwritten
}
PyObject* end_mark(PyObject*, PyObject* which) {
  u64 sequence = PyLong_AsUnsignedLongLong(which);
  if (PyErr_Occurred()) return nullptr;
  end_mark(current.load(std::memory_order_acquire), sequence);
  Py_RETURN_NONE;
}
PyMethodDef mark_methods[] = {
    {"begin", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)(void)>(begin_mark)), METH_FASTCALL, nullptr},
    {"instant", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)(void)>(instant_mark)), METH_FASTCALL, nullptr},
    {"report", report_mark, METH_VARARGS, nullptr},
    {"end", static_cast<PyCFunction>(end_mark), METH_O, nullptr}};

// -- steps of the program's only optimizer, as `marks/steps.py` counts them; all with the GIL

/* The words of `StepCounter.only`. */
struct Only {
  u64 is_set, thread, mark, steps, last_mark, last_thread;
};
Only only{};
PyObject* only_optimizer = nullptr;  // a weak reference

bool refers_to(PyObject* reference, PyObject* object) {
#if PY_VERSION_HEX >= 0x030D0000
  PyObject* found = nullptr;
  if (PyWeakref_GetRef(reference, &found) < 0) PyErr_Clear();
  Py_XDECREF(found);
  return found == object;
#else
  return PyWeakref_GetObject(reference) == object;
#endif
}

/* The state, if it is this optimizer and nobody wants to do more at its steps. */
State* counting(PyObject* optimizer) {
  State* state = current.load(std::memory_order_acquire);
  if (!only.is_set || !state || !__atomic_load_n(state->enabled, __ATOMIC_RELAXED)) return nullptr;
  if (listed(misses.watching) || filled(misses.handles)) return nullptr;
  return refers_to(only_optimizer, optimizer) ? state : nullptr;
}

/* Both return whether they have done it. */
PyObject* begin_step(PyObject*, PyObject* optimizer) {
  State* state = counting(optimizer);
  if (!state || only.thread) Py_RETURN_FALSE;
  only.mark = write_mark(OPTIMIZER, get(state->cells + STEP) + 1, true);
  only.thread = u64(pthread_self());
  Py_RETURN_TRUE;
}
PyObject* end_step(PyObject*, PyObject* optimizer) {
  State* state = counting(optimizer);
  if (!state || only.thread != u64(pthread_self())) Py_RETURN_FALSE;
  only.thread = 0;
  end_mark(state, only.mark);
  if (++only.steps > get(state->cells + STEP)) {
    put(state->cells + STEP, only.steps);
    put(state->cells + STEP_NS, u64(now_ns()));
    only.last_mark = write_mark(STEP_ENDED, only.steps, false);
    only.last_thread = u64(pthread_self());
  }
  Py_RETURN_TRUE;
}

/* Counts from now on, for a weak reference and the steps so far. */
PyObject* give_steps(PyObject*, PyObject* args) {
  PyObject* reference;
  unsigned long long steps;
  if (!PyArg_ParseTuple(args, "OK", &reference, &steps)) return nullptr;
  Py_INCREF(reference);
  PyObject* before = only_optimizer;
  only_optimizer = reference;
  only.thread = 0;
  only.steps = steps;
  only.is_set = 1;
  Py_XDECREF(before);
  Py_RETURN_NONE;
}

/* Counts no longer: sets `steps` of an object, and the entry of the thread that is in a step. No
 * other thread runs in between: what may collect garbage is made before. */
PyObject* take_steps(PyObject*, PyObject* args) {
  PyObject *one, *begun;
  if (!PyArg_ParseTuple(args, "OO!", &one, &PyDict_Type, &begun)) return nullptr;
  try {
    py::tuple both(2);
    py::list list(1);
    if (!only.is_set) Py_RETURN_NONE;
    py::int_ thread(only.thread), mark(only.mark), steps(only.steps);
    PyTuple_SET_ITEM(both.ptr(), 0, py::reinterpret_borrow<py::object>(one).release().ptr());
    PyTuple_SET_ITEM(both.ptr(), 1, mark.release().ptr());
    PyList_SET_ITEM(list.ptr(), 0, both.release().ptr());
    if (PyObject_SetAttrString(one, "steps", steps.ptr()) < 0) return nullptr;
    if (only.thread && PyDict_SetItem(begun, thread.ptr(), list.ptr()) < 0) return nullptr;
    only.is_set = only.thread = 0;
    Py_RETURN_NONE;
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
}
PyMethodDef step_methods[] = {
    {"begin", begin_step, METH_O, nullptr}, {"end", end_step, METH_O, nullptr},
    {"give", give_steps, METH_VARARGS, nullptr}, {"take", take_steps, METH_VARARGS, nullptr}};

/* A tuple of functions. */
template <size_t N>
PyObject* functions(PyMethodDef (&methods)[N]) {
  PyObject* found = PyTuple_New(Py_ssize_t(N));
  for (size_t i = 0; found && i < N; i++) {
    PyObject* function = PyCFunction_New(&methods[i], nullptr);
    if (!function) Py_CLEAR(found);
    else PyTuple_SET_ITEM(found, Py_ssize_t(i), function);
  }
  return found;
}

torch::Library *library = nullptr, *functional = nullptr;

int number_of(const py::dict& of, const char* name) { return of[name].cast<int>(); }

}  // namespace

// -- what `library.py` calls; all with the GIL

extern "C" {

/* Sets the exception that is being handled as Python's. */
static void set_error() {
  try {
    throw;
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
}

/* What this was built for. */
SHOWN const char* frtop_built_for() { return FRTOP_BUILT_FOR; }

/* For the check at the start, see `check.py`. */
SHOWN int frtop_check_stack(void** codes, int* instructions, int most) {
  return frtop_stack(codes, instructions, most);
}
SHOWN u32 frtop_check_sum(const u8* data, size_t size) { return crc.of(data, size); }
/* A slot whose fields are 1, 2, 3, ... in their order, except for its sum. */
SHOWN void frtop_check_slot(u8* to) {
  Slot slot{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 0, 14, 15, 16, 17, 18};
  slot.checksum = sum_of(slot);
  memcpy(to, &slot, sizeof slot);
}
/* The numbers that `ring/layout.py` has too. */
SHOWN size_t frtop_check_numbers(u64* to, size_t most) {
  const u64 numbers[] = {CELLS_AT, HEAD, STEP, STEP_NS, PENDING_LOST, MARKS, LONGER_FROM, STEP_ENDED, OPTIMIZER,
                         REPORT, ROW_WORDS * 8, CHUNK, SIZES_HEAD, MESSAGES, REDUCE_OTHER, SYNC, P2P, UNTRACKED, LATE, DEVICE, ELSEWHERE,
                         offsetof(Slot, later), offsetof(Slot, done), offsetof(Slot, wait)};
  memcpy(to, numbers, std::min(sizeof numbers, most * 8));
  return std::size(numbers);
}

/* Begins to record into a ring, in place of the one before. Its memory must stay mapped. */
SHOWN int frtop_open(u8* ring, const u64* shape, const u8* enabled) {
  State* before = current.load();
  if (before && before->base == ring) return 0;
  Shape of;
  memcpy(&of, shape, sizeof of);
  u8* memory = tables();
  frtop_place_codes(memory);
  current.store(new (memory + FRTOP_CODES_SIZE) State(ring, of, enabled));
  only = {};
  return 0;
}

/* Installs a kernel for each operation, given as dicts. Returns how many; -1 with an exception. */
SHOWN int frtop_install(PyObject* operations, PyObject* callbacks) {
  try {
    auto get = [&](const char* name) {
      return py::object(py::reinterpret_borrow<py::object>(callbacks).attr(name)).release().ptr();
    };
    misses = {get("group"), get("form"), get("classify"), get("site"), get("issuer"), get("watch"),
              get("handed"), get("at_op"), get("device"), get("issuers"),
              get("watching"), get("unfinished"), get("device_handles"), get("handles"),
              reinterpret_cast<PyListObject*>(get("sites_on"))->ob_item};
    library = new torch::Library(torch::Library::IMPL, "c10d", c10::DispatchKey::BackendSelect, __FILE__, __LINE__);
    int count = 0;
    for (auto each : py::reinterpret_borrow<py::list>(operations)) {
      auto given = each.cast<py::dict>();
      auto name = given["name"].cast<std::string>();
      auto handle = c10::Dispatcher::singleton().findSchema({"c10d::" + name, ""});
      if (!handle) continue;
      Operation op{};
      op.index = number_of(given, "index");
      op.group = number_of(given, "group");
      op.root = number_of(given, "root");
      op.peer = number_of(given, "peer");
      op.tag = number_of(given, "tag");
      op.reduce = number_of(given, "reduce");
      op.async_op = number_of(given, "async_op");
      op.timeout = number_of(given, "timeout");
      op.in_splits = number_of(given, "in_splits");
      op.out_splits = number_of(given, "out_splits");
      op.p2p = given["p2p"].cast<bool>();
      op.silent = given["unsignalled"].cast<bool>();
      op.barrier = given["barrier"].cast<bool>();
      op.always_sync = given["always_sync"].cast<bool>();
      op.arguments = int(handle->schema().arguments().size());
      for (auto one : given["tensors"].cast<py::list>()) {
        auto argument = one.cast<py::tuple>();
        op.tensors.push_back({argument[0].cast<int>(), argument[1].cast<int>(), argument[2].cast<bool>()});
      }
      auto kernel = std::make_unique<Kernel>(std::move(op));
      for (const auto& one : handle->schema().returns()) kernel->schema_returns.push_back(one.type());
      library->impl(name.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::move(kernel)));
      count++;
    }
    if (c10::Dispatcher::singleton().findSchema({"_c10d_functional::wait_tensor", ""})) {
      functional = new torch::Library(
          torch::Library::IMPL, "_c10d_functional", c10::DispatchKey::BackendSelect, __FILE__, __LINE__);
      functional->impl("wait_tensor", torch::CppFunction::makeFromBoxedFunctor(std::make_unique<TensorWait>()));
    }
    return count;
  } catch (...) {
    set_error();
    return -1;
  }
}

/* Removes the kernels; no op may be running. */
SHOWN void frtop_remove() {
  delete library;
  delete functional;
  library = functional = nullptr;
}

SHOWN u64 frtop_next_sequence() { return current.load()->sequence.fetch_add(1) + 1; }

/* Takes the next number of a group, for an op that Python records. */
SHOWN u64 frtop_next_number(u32 id, int p2p) {
  Group* group = group_with(current.load(), id);
  return (p2p ? group->p2p : group->number).fetch_add(1) + 1;
}

/* Takes consecutive chunks for sizes that Python writes; returns the first. */
SHOWN u64 frtop_take_chunks(u64 count) {
  State* state = current.load();
  u64 first = state->chunks.fetch_add(count) + 1, last = first + count - 1, half = state->shape.chunks / 2;
  if (last > half) put_greater(reinterpret_cast<u64*>(&state->floor), last - half);
  return first;
}

/* The first chunk that new ops may still use. */
SHOWN u64 frtop_floor() { return current.load()->floor.load(); }

/* Forgets which object of torch is a group; if it is `gone` for good, soon its counts, too. */
SHOWN void frtop_forget_group(u32 id, int gone) {
  State* state = current.load();
  for (auto& at : state->groups) {
    Group* group = at.group.load();
    if (group && group->id == id) at.key.store(nullptr);
  }
  if (!gone) return;
  Locked lock(state->groups_lock);
  state->gone_groups.emplace_back(now_ns(), id);
}

/* Tests all handles; at each heartbeat. */
SHOWN void frtop_tick() {
  State* state = current.load();
  test_handles(state, true);
  spill(state);
}

/* Ends the tracking of a group's ops, 0: of all. */
SHOWN void frtop_release(u32 group) {
  State* state = current.load();
  test_handles(state, true);
  for (Tested& one : take_tested(state, true)) {
    if (!group || one.group == group) {
      untrack(state, one.sequence, 0);
      continue;
    }
    Locked lock(state->tested_lock);
    state->tested.push_back(std::move(one));
    state->tested_count.store(u32(state->tested.size()));
  }
  u64 head = get(state->cells + HEAD), slots = std::max(state->shape.slots, state->shape.more);
  for (u64 sequence = head > slots ? head - slots : 1; sequence <= head; sequence++) {
    Slot* slot = state->slot(sequence);
    if (is_pending(slot, sequence) && is_ours(slot) && (!group || slot->group == group))
      untrack(state, sequence, 0);
  }
  for (size_t i = 0; i < state->spilled.size(); i++) {
    u64 sequence = state->spilled[i].load();
    if (sequence && (!group || state->row(i)->group == group)) untrack(state, sequence, 0);
  }
}

/* The oldest op that is pending and not in the overflow, or the next one. */
SHOWN u64 frtop_oldest() {
  State* state = current.load();
  u64 head = get(state->cells + HEAD), slots = std::max(state->shape.slots, state->shape.more);
  u64 oldest = std::max(state->oldest, head > slots ? head - slots : 1);
  for (; oldest <= head; oldest++) {
    Slot* slot = state->slot(oldest);
    u64 there = get(&slot->sequence);
    if (there < oldest) break;  // it is being written
    if (!is_pending(slot, oldest) || slot->event != EVENT_OP || slot->flags & DEVICE) continue;
    if (!is_spilled(state, oldest)) break;
  }
  return state->oldest = oldest;
}

SHOWN int frtop_is_open(u64 sequence) {
  State* state = current.load();
  Slot* slot = state->slot(sequence);
  return (is_pending(slot, sequence) && is_ours(slot)) || is_spilled(state, sequence);
}

/* Tensors of pending ops: a list of (sequence, [(is output, tensor), ...]). */
SHOWN PyObject* frtop_tensors() {
  try {
    py::list result;
    for (Refs& refs : current.load()->refs) {
      Tensors found;
      u64 sequence;
      {
        Locked lock(refs.lock);
        if (!(sequence = refs.sequence)) continue;
        found = refs.tensors;
      }
      py::list tensors;
      for (Ref& one : found) {
        auto strong = one.tensor.lock();
        if (!strong) continue;
        at::Tensor tensor(std::move(strong));
        auto object = py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor));
        if (!object) throw py::error_already_set();
        tensors.append(py::make_tuple(one.output, object));
      }
      result.append(py::make_tuple(sequence, tensors));
    }
    return result.release().ptr();
  } catch (...) {
    set_error();
    return nullptr;
  }
}

/* Moves what was measured lately to an array of as many words; see `State::measured`. */
SHOWN void frtop_measured(u64* to) {
  for (auto& one : current.load()->measured) *to++ = one.load() ? one.exchange(0) : 0;
}

/* Why the kernels switched recording off; null if they did not. */
SHOWN const char* frtop_failure() { return current.load()->failure.load(); }

/* From now on marks are written here; returns the functions for that, as `mark_methods` has them. */
SHOWN PyObject* frtop_marks() {
  State* state = current.load();
  state->marks.store(get(state->cells + MARKS));
  return functions(mark_methods);
}

/* Returns the functions of `step_methods`; `frtop_only` has the words of `Only`. */
SHOWN PyObject* frtop_steps() { return functions(step_methods); }
SHOWN u64* frtop_only() { return reinterpret_cast<u64*>(&only); }

/* Returns what replaces the `wait` of a class of handles. */
SHOWN PyObject* frtop_wait(PyObject* kind, PyObject* own, PyObject* wrapper) {
  int count = bound_count.load(), at = 0;
  while (at < count && reinterpret_cast<PyObject*>(bound_types[at]) != kind) at++;
  if (at == count && count < int(std::size(bound_types))) {
    bound_types[count] = reinterpret_cast<PyTypeObject*>(kind);
    Py_INCREF(kind);
    bound_count.store(count + 1);
  }
  PyObject* both = PyTuple_Pack(2, own, wrapper);
  PyObject* function = both ? PyCFunction_New(&wait_method, both) : nullptr;
  Py_XDECREF(both);
  PyObject* method = function ? PyInstanceMethod_New(function) : nullptr;
  Py_XDECREF(function);
  return method;
}
}
