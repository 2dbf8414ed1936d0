/* SPDX-License-Identifier: MIT
 * handlers.c - see handlers.h. */
#include "core/plugin/handlers.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

void bs_handlers_keep(bs_handlers *out_handlers) {
  memset(out_handlers, 0, sizeof *out_handlers);
  for (int s = 1; s < BS_SIGNALS; s++) /* the two of the C library's own cannot be read: they stay zero */
    (void)sigaction(s, NULL, &out_handlers->of[s]);
}

/* The address, whichever of the two forms of a handler it is: they share a place. */
static void *address(const struct sigaction *a) {
  void *at = NULL;
  memcpy(&at, &a->sa_handler, sizeof at);
  return at;
}

static int lies_in(void *handle, void *at) {
  struct link_map *of_handle = NULL, *of_at = NULL;
  Dl_info info;
  return handle != NULL && dlinfo(handle, RTLD_DI_LINKMAP, &of_handle) == 0 &&
         dladdr1(at, &info, (void **)&of_at, RTLD_DL_LINKMAP) != 0 && of_handle == of_at;
}

uint32_t bs_handlers_put_back(const bs_handlers *handlers, void *spared) {
  uint32_t n = 0;
  for (int s = 1; s < BS_SIGNALS; s++) {
    struct sigaction now;
    if (sigaction(s, NULL, &now) != 0) continue;
    if (address(&now) == address(&handlers->of[s]) && now.sa_flags == handlers->of[s].sa_flags) continue;
    if (lies_in(spared, address(&now))) continue;
    n += sigaction(s, &handlers->of[s], NULL) == 0;
  }
  return n;
}
