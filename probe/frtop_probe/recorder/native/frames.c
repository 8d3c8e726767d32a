/* Frames differ in each CPython: the structures come from its own headers, at build time. */
#define Py_BUILD_CORE 1
#include <Python.h>
#if PY_VERSION_HEX >= 0x030e0000
#include <internal/pycore_interpframe.h>
#elif PY_VERSION_HEX >= 0x030b0000
#include <internal/pycore_frame.h>
#else
#include <frameobject.h>
#endif
#include <stdatomic.h>

#include "frames.h"

enum { CODES = FRTOP_CODES_SIZE / sizeof(uintptr_t), MOST = CODES / 4 * 3 };
enum { DEPTH = 1024, WAITS_WITHIN = 3, AHEAD = 8 };

/* Code objects are aligned to 16 bytes: the low bits hold what each is. A word is one load, so a
 * reader needs no lock. Each has a reference, so that its address stays its own. Written with the
 * GIL only. */
static _Atomic uintptr_t *codes;
static unsigned known;
_Atomic unsigned frtop_codes_epoch;

void frtop_place_codes(void *memory) {
  if (!codes) codes = memory;
}

static inline unsigned place(uintptr_t code) {
  return (unsigned)((code >> 4) * 0x9E3779B97F4A7C15ULL >> 40);
}

void frtop_forget_codes(void) {
  static uintptr_t dropped[MOST + 1];
  unsigned count = 0;
  atomic_fetch_add(&frtop_codes_epoch, 1);
  for (unsigned i = 0; codes && i < CODES; i++) {
    uintptr_t word = atomic_exchange(&codes[i], 0);
    if (word) dropped[count++] = word;
  }
  known = 0;
  while (count) Py_DECREF((PyObject *)(dropped[--count] & ~(uintptr_t)15));
}

static int learn(void *code, frtop_classify classify) {
  int kind = classify(code);
  if (kind < 0) return kind;
  PyGILState_STATE state = PyGILState_Ensure();
  if (known >= MOST) frtop_forget_codes();
  for (unsigned i = place((uintptr_t)code);; i++) {
    uintptr_t word = atomic_load_explicit(&codes[i % CODES], memory_order_relaxed);
    if ((word & ~(uintptr_t)15) == (uintptr_t)code) break; /* another thread was faster */
    if (word) continue;
    Py_INCREF((PyObject *)code);
    known++;
    atomic_store_explicit(&codes[i % CODES], (uintptr_t)code | (unsigned)kind, memory_order_release);
    break;
  }
  PyGILState_Release(state);
  return kind;
}

static inline int kind_of(void *code, frtop_classify classify) {
  for (unsigned i = place((uintptr_t)code), n = 0; n < CODES; i++, n++) {
    uintptr_t word = atomic_load_explicit(&codes[i % CODES], memory_order_acquire);
    if (!word) break;
    if ((word & ~(uintptr_t)15) == (uintptr_t)code) return (int)(word & 15);
  }
  return learn(code, classify);
}

#if PY_VERSION_HEX >= 0x030b0000

typedef _PyInterpreterFrame frame;

static inline frame *newest(PyThreadState *thread) {
#if PY_VERSION_HEX >= 0x030d0000
  return thread->current_frame;
#else
  return thread->cframe ? thread->cframe->current_frame : NULL;
#endif
}

static inline PyCodeObject *code_of(frame *one) {
#if PY_VERSION_HEX >= 0x030d0000
  return _PyFrame_GetCode(one);
#else
  return one->f_code;
#endif
}

/* Whether it stands for a call from C, and has no code. */
static inline int is_shim(frame *one) {
#if PY_VERSION_HEX >= 0x030e0000
  return one->owner >= FRAME_OWNED_BY_INTERPRETER;
#elif PY_VERSION_HEX >= 0x030c0000
  return one->owner == FRAME_OWNED_BY_CSTACK;
#else
  (void)one;
  return 0;
#endif
}

static inline int complete(frame *one) {
#if PY_VERSION_HEX >= 0x030c0000
  return !_PyFrame_IsIncomplete(one);
#else
  return one->owner == FRAME_OWNED_BY_GENERATOR ||
         one->prev_instr >= _PyCode_CODE(one->f_code) + one->f_code->_co_firsttraceable;
#endif
}

static inline frame *caller_of(frame *one) { return one->previous; }

static inline int instruction_of(frame *one) {
  return _PyInterpreterFrame_LASTI(one) * (int)sizeof(_Py_CODEUNIT);
}

#else /* 3.10: frames are objects */

typedef struct _frame frame;

static inline frame *newest(PyThreadState *thread) { return thread->frame; }
static inline PyCodeObject *code_of(frame *one) { return one->f_code; }
static inline int is_shim(frame *one) { return one == NULL; }
static inline int complete(frame *one) { return one != NULL; }
static inline frame *caller_of(frame *one) { return one->f_back; }
static inline int instruction_of(frame *one) { return one->f_lasti * 2; }

#endif

int frtop_find_frame(frtop_frame *found, frtop_classify classify) {
  PyThreadState *thread = PyGILState_GetThisThreadState();
  found->waits = 0;
  if (!thread) return 0;
  frame *one = newest(thread), *ahead[AHEAD];
  for (int depth = 0; one && depth < DEPTH;) {
    /* After a step's arithmetic the table is in no cache: several loads at once take as long as one. */
    int count = 0;
    for (; one && count < AHEAD; one = caller_of(one)) {
      if (is_shim(one)) continue;
      __builtin_prefetch((void *)&codes[place((uintptr_t)code_of(one)) % CODES]);
      ahead[count++] = one;
    }
    for (int i = 0; i < count; i++, depth++) {
      PyCodeObject *code = code_of(ahead[i]);
      int kind = kind_of(code, classify);
      if (kind < 0) return -1;
      if (kind == FRTOP_SKIPPED || !complete(ahead[i])) continue;
      if (kind == FRTOP_WAITS && depth < WAITS_WITHIN) found->waits = 1;
      if (kind == FRTOP_USER) {
        found->code = code;
        found->instruction = instruction_of(ahead[i]);
        return 1;
      }
    }
  }
  return 0;
}

int frtop_stack(void **codes, int *instructions, int most) {
  PyThreadState *thread = PyGILState_GetThisThreadState();
  int depth = 0;
  for (frame *one = thread ? newest(thread) : NULL; one && depth < most; one = caller_of(one)) {
    if (!complete(one)) continue;
    codes[depth] = code_of(one);
    instructions[depth++] = instruction_of(one);
  }
  return depth;
}
