/* SPDX-License-Identifier: MIT
 * spacer.h - other places in memory for what is built anew. A thread gets the same addresses again for the
 * same sizes: without spacers an arm keeps its place through all builds, and what the place costs looks like
 * a difference between the arms. */
#ifndef BS_LAB_MEASURE_SPACER_H
#define BS_LAB_MEASURE_SPACER_H

/* Memory of a random length, to be held while what is allocated behind it stands; the caller frees. NULL: no
 * memory, and no other place. */
void *bs_spacer_take(void);
/* Behind the freeing of what is built anew: its pages go back to the system, which deals out others. */
void bs_spacer_return_pages(void);
#endif
