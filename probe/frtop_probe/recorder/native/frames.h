/* The call site of an op, from this thread's own Python frames. */
#ifndef FRTOP_FRAMES_H
#define FRTOP_FRAMES_H

#include <stdint.h>

#ifdef __cplusplus
#include <atomic>
extern "C" {
extern std::atomic<unsigned> frtop_codes_epoch;
#else
#include <stdatomic.h>
extern _Atomic unsigned frtop_codes_epoch;
#endif
/* Changes when code objects are released: their addresses may then be others'. */

/* What a code object is, as Python classifies it (`install.py`). */
enum { FRTOP_UNKNOWN = 0, FRTOP_USER = 1, FRTOP_SKIPPED = 2, FRTOP_WAITS = 3 };

/* Asks what a code object is; takes the GIL. Negative: an exception of the program is set. */
typedef int (*frtop_classify)(void *code);

/* One frame that is the program's own. */
typedef struct {
  void *code;       /* PyCodeObject, alive while this thread is in the frame */
  int instruction;  /* as `frame.f_lasti` */
  int waits;        /* whether a function of torch that waits is among the frames above it */
} frtop_frame;

enum { FRTOP_CODES_SIZE = 8192 * sizeof(void *) };

/* Gives the table of code objects its memory, all zero. Before any other call. */
void frtop_place_codes(void *memory);

/* Finds the innermost frame of the program, without the GIL: nobody else changes the frames of a
 * thread that is in a call further down. Returns 0 where there is none (no Python, or too deep), and
 * -1 if `classify` failed. */
int frtop_find_frame(frtop_frame *found, frtop_classify classify);

/* The frames of this thread, innermost first, for the check at the start; returns how many. */
int frtop_stack(void **codes, int *instructions, int most);

/* Forgets all code objects that were classified, and releases them. With the GIL. */
void frtop_forget_codes(void);

#ifdef __cplusplus
}
#endif
#endif
