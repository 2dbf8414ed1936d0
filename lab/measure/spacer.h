/* SPDX-License-Identifier: MIT
 * spacer.h - moves rebuilt objects to other addresses. A thread gets the same addresses again for the same
 * sizes. Without spacers an arm keeps its addresses through all builds, and their effect on speed looks like
 * a difference between the arms. */
#ifndef BS_LAB_MEASURE_SPACER_H
#define BS_LAB_MEASURE_SPACER_H

/* Takes memory of a random length; hold it while later allocations are in use. The caller frees. NULL: no
 * memory, and addresses do not change. */
void *bs_spacer_take(void);
/* Call it after freeing what is rebuilt: returns its pages to the system, which then provides others. */
void bs_spacer_return_pages(void);
#endif
