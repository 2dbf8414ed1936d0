/* SPDX-License-Identifier: MIT
 * trust.c - ownership and permission checks of plugin files and the folders above them. Called by
 * file.c. A folder next to the library is measured by the library: whoever can change libblockshock.so
 * gains nothing by changing a plugin, so build trees and relocated installs work wherever the library
 * itself was accepted. */
#include "core/plugin/trust.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_GROUPS = 256 };

static int group_is_ours(gid_t gid) {
  gid_t groups[MAX_GROUPS];
  if (gid == getegid()) return 1;
  int n = getgroups(MAX_GROUPS, groups);
  for (int i = 0; i < n; i++)
    if (groups[i] == gid) return 1;
  return 0;
}

static int base_owner(const bs_trust_base *base, uid_t uid) {
  return base != NULL && (base->owners[0] == uid || base->owners[1] == uid);
}

static int base_group(const bs_trust_base *base, gid_t gid) {
  if (base == NULL) return 0;
  for (uint32_t i = 0; i < 2; i++)
    if ((base->group_writable & (1u << i)) && base->groups[i] == gid) return 1;
  return 0;
}

int bs_trust_judge(uint32_t trust, const struct stat *st, uid_t euid, const bs_trust_base *base,
                   char *out_why, size_t size) {
  const int sticky = S_ISDIR(st->st_mode) && (st->st_mode & S_ISVTX) != 0;
  const int sticky_trusted = sticky && (trust & BS_TRUST_STICKY) != 0;
  trust &= ~(uint32_t)BS_TRUST_STICKY;
  if (trust == BS_TRUST_ANY) return 1;
  int ours = trust == BS_TRUST_GROUP && group_is_ours(st->st_gid);
  unsigned mode = (unsigned)(st->st_mode & 07777);
  if (st->st_uid != 0 && st->st_uid != euid && !ours && !base_owner(base, st->st_uid)) {
    snprintf(out_why, size, "is owned by uid %u, neither root nor uid %u", (unsigned)st->st_uid,
             (unsigned)euid);
    return 0;
  }
  if (sticky_trusted) return 1;
  if (mode & S_IWOTH) {
    snprintf(out_why, size, "is world-writable (mode %04o%s)", mode, sticky ? ", sticky" : "");
    return 0;
  }
  if ((mode & S_IWGRP) && !ours && !base_group(base, st->st_gid)) {
    snprintf(out_why, size, "is group-writable (mode %04o, gid %u)", mode, (unsigned)st->st_gid);
    return 0;
  }
  return 1;
}

static int32_t untrusted(uint32_t trust, const char *path, const char *why, bs_error *err) {
  bs_error_set(err, BS_PLUGIN, "BS-PLG-TRUST", "%s %s", path, why);
  bs_error_hint(err, "chmod go-w and chown it, name the file by --plugin PATH, or set plugin_trust=%s",
                trust == BS_TRUST_OWNER ? "group or any" : "any");
  return BS_PLUGIN;
}

int32_t bs_trust_chain(uint32_t trust, const char *real, const bs_trust_base *base, bs_error *err) {
  char path[PATH_MAX], why[128];
  struct stat st;
  size_t n = strlen(real);
  if ((trust & ~(uint32_t)BS_TRUST_STICKY) == BS_TRUST_ANY) return BS_OK;
  if (n >= sizeof path || real[0] != '/') return untrusted(trust, real, "is not a resolved path", err);
  memcpy(path, real, n + 1);
  for (;;) {
    if (base != NULL && strcmp(path, base->root) == 0) return BS_OK;
    if (lstat(path, &st) != 0)
      return bs_error_errno(err, BS_PLUGIN, "BS-PLG-TRUST", errno, "cannot stat %s", path);
    if (!bs_trust_judge(trust, &st, geteuid(), base, why, sizeof why))
      return untrusted(trust, path, why, err);
    if (strcmp(path, "/") == 0) return BS_OK;
    char *slash = strrchr(path, '/');
    slash[slash == path ? 1 : 0] = '\0';
  }
}

int bs_trust_base_of(const char *library, bs_trust_base *out_base) {
  struct stat st[2];
  memset(out_base, 0, sizeof *out_base);
  char *root = realpath(library, NULL);
  if (root == NULL || stat(root, &st[0]) != 0) goto fail;
  char *slash = strrchr(root, '/');
  slash[slash == root ? 1 : 0] = '\0';
  if (stat(root, &st[1]) != 0) goto fail;
  for (uint32_t i = 0; i < 2; i++) {
    out_base->owners[i] = st[i].st_uid;
    out_base->groups[i] = st[i].st_gid;
    if (st[i].st_mode & S_IWGRP) out_base->group_writable |= 1u << i;
  }
  out_base->root = root;
  return 1;
fail:
  free(root);
  return 0;
}
