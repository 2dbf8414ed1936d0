/* SPDX-License-Identifier: MIT
 * driven.h - the kit's own communicator: worlds whose ranks are coroutines that give way at each collective.
 */
#ifndef BS_KIT_DRIVEN_H
#define BS_KIT_DRIVEN_H
#include <stddef.h>

#include "blockshock/blockshock.h"
#include "sim/coroutine.h"

/* A real stack of a DRIVEN world has 64 KiB; the kit's have more room, so that it can tell how far a method
 * is beyond what is allowed. A page below it can not be touched. */
enum { KIT_STACK_BYTES = 1 << 20, KIT_STACK_LIMIT = 32 << 10 };

/* From here on every world of this context is DRIVEN: the context's own copy of the table of `threads`
 * becomes that of the kit. Fails the check when there is no such communicator. */
void kit_driven_use(bs_context *context);

/* kit_stack_paint fills the unused part of the running coroutine's stack with a pattern. kit_stack_used
 * returns the bytes below this call's frame that were written since. Outside of a coroutine: nothing, and
 * 0. */
void kit_stack_paint(void);
size_t kit_stack_used(void);
#endif
