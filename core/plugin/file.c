/* SPDX-License-Identifier: MIT
 * file.c - one plugin file: its row, and every check that needs none of its code: regular file, trust,
 * whole ELF, symbols, note, id, twice the same id or inode. Called by search.c for each file found and
 * by load.c again right before the file is opened. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/text.h"
#include "core/plugin/plugins.h"
#include "core/plugin/trust.h"

int bs_plugin_id_valid(const char *id) {
  size_t n = strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789_");
  return id[n] == '\0' && n >= 2 && n <= BS_PLUGIN_ID_MAX && islower((unsigned char)id[0]);
}

const char *bs_kind_word(uint32_t kind) {
  static const char *const words[] = {"op",       "backend",  "comm",      "method",
                                      "workload", "importer", "algorithm", "topology"};
  _Static_assert(sizeof words / sizeof words[0] == BS_KIND_COUNT_, "a word for each kind");
  return kind < BS_KIND_COUNT_ ? words[kind] : "unknown kind";
}

bs_plugin_self *bs_plugin_new(bs_context *context, const char *path, const char *origin) {
  bs_plugin_self *p = calloc(1, sizeof *p);
  if (p == NULL) return NULL;
  p->context = context;
  p->path = bs_strdup(path);
  p->origin = bs_strdup(origin);
  atomic_init(&p->activating, 0);
  if (p->path == NULL || p->origin == NULL || !bs_list_push(&context->plugins, p)) {
    bs_plugin_free(p);
    return NULL;
  }
  return p;
}

void bs_plugin_free(bs_plugin_self *plugin) {
  if (plugin == NULL) return;
  for (uint32_t i = 0; i < plugin->staged.count; i++) bs_entry_free(plugin->staged.items[i]);
  bs_list_free(&plugin->staged);
  bs_params_drop(plugin);
  free(plugin->path);
  free(plugin->real);
  free(plugin->origin);
  free(plugin->things);
  free(plugin);
}

/* The end of a long path says more than its start. */
static void set_where(const bs_plugin_self *plugin, bs_error *err) {
  const char *path = plugin->builtin ? plugin->id : plugin->path;
  size_t n = strlen(path), room = sizeof err->where - 1;
  if (n <= room)
    bs_error_where(err, "%s", path);
  else
    bs_error_where(err, "...%s", path + n - (room - 3));
}

void bs_plugin_refuse(bs_plugin_self *plugin, uint32_t state, const bs_error *why) {
  plugin->state = state;
  plugin->failure = *why;
  set_where(plugin, &plugin->failure);
  snprintf(plugin->failure.plugin, sizeof plugin->failure.plugin, "%s", plugin->id);
}

static int32_t open_checked(bs_plugin_self *plugin, int *out_fd, struct stat *out_st, bs_error *err) {
  /* O_NONBLOCK: a FIFO of that name must not stop us. */
  int fd = open(plugin->real, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd < 0) return bs_error_errno(err, BS_PLUGIN, "BS-PLG-LOAD", errno, "cannot open the file");
  if (fstat(fd, out_st) != 0) {
    int saved = errno;
    close(fd);
    return bs_error_errno(err, BS_PLUGIN, "BS-PLG-LOAD", saved, "cannot stat the file");
  }
  if (!S_ISREG(out_st->st_mode)) {
    close(fd);
    return bs_error_set(err, BS_PLUGIN, "BS-PLG-PATH", "is not a regular file");
  }
  *out_fd = fd;
  return BS_OK;
}

/* By search: refused. By path: the user said so, a warning. */
static int32_t check_trust(bs_plugin_self *plugin, int warn, bs_error *err) {
  bs_context *c = plugin->context;
  const bs_trust_base *base = plugin->own_folder ? &c->base : NULL;
  bs_error why = BS_ERROR_INIT;
  int32_t rc = bs_trust_chain(c->trust | (plugin->by_path ? BS_TRUST_STICKY : 0), plugin->real, base, &why);
  if (rc == BS_OK) return BS_OK;
  if (!plugin->by_path) {
    if (err != NULL) *err = why;
    return rc;
  }
  if (warn)
    bs_log_write(&c->logger, BS_LOG_WARN, "", -1, "%s: %s; opened all the same, as it was named by path",
                 plugin->path, why.message);
  return BS_OK;
}

static int32_t check_note(const bs_plugin_self *plugin, const bs_elf_info *info, bs_error *err) {
  int32_t rc = bs_symbol_accept(info, err);
  if (rc != BS_OK) return rc;
  if (!info->has_note) {
    if (plugin->by_path) return BS_OK;
    bs_error_set(err, BS_PLUGIN, "BS-PLG-NOTE", "has no .note.blockshock note");
    bs_error_hint(err, "define the plugin by BS_PLUGIN_DEFINE, or name the file by --plugin PATH");
    return BS_PLUGIN;
  }
  rc = bs_note_accept(info, err);
  if (rc != BS_OK) return rc;
  if (!bs_plugin_id_valid(info->note.id))
    return bs_error_set(err, BS_PLUGIN, "BS-PLG-ID", "plugin id '%s' is not [a-z][a-z0-9_]{1,30}",
                        info->note.id);
  if (strcmp(info->note.id, plugin->id) != 0) {
    bs_error_set(err, BS_PLUGIN, "BS-PLG-ID", "file is named bs_%s.so, its plugin id is '%s'", plugin->id,
                 info->note.id);
    bs_error_hint(err, "rename it to bs_%s.so", info->note.id);
    return BS_PLUGIN;
  }
  return BS_OK;
}

/* Replaces control characters by '?': the texts of a refused plugin are shown, too. */
static void tame(char *text, size_t size, int newlines) {
  text[size - 1] = '\0';
  for (char *p = text; *p != '\0'; p++)
    if (((unsigned char)*p < 0x20 && !(newlines && *p == '\n')) || *p == 0x7f) *p = '?';
}

static void keep_note(bs_plugin_self *plugin, const bs_elf_info *info) {
  plugin->has_note = info->has_note;
  plugin->note = info->note;
  tame(plugin->note.id, sizeof plugin->note.id, 0);
  tame(plugin->note.version, sizeof plugin->note.version, 0);
  tame(plugin->note.summary, sizeof plugin->note.summary, 0);
  tame(plugin->note.things, sizeof plugin->note.things, 1);
}

/* Refuses a plugin whose file or id is in an earlier row. A refused file does not take the id. */
static int32_t check_twice(bs_plugin_self *plugin, bs_error *err) {
  for (uint32_t i = 0; i < plugin->context->plugins.count; i++) {
    const bs_plugin_self *other = bs_plugin_at(plugin->context, i);
    if (other == plugin) break;
    if (!other->builtin && other->real != NULL && other->dev == plugin->dev && other->ino == plugin->ino)
      return bs_error_set(err, BS_PLUGIN, "BS-PLG-DUP", "same file as %s", other->path);
    if (other->state == BS_PLUGIN_FOUND && strcmp(other->id, plugin->id) == 0)
      return bs_error_set(err, BS_PLUGIN, "BS-PLG-DUP", "shadowed by %s (%s)", other->path, other->origin);
  }
  return BS_OK;
}

static int32_t take_id(bs_plugin_self *plugin, const char *name, bs_error *err) {
  size_t n = strlen(name);
  int form = n > 6 && strncmp(name, "bs_", 3) == 0 && strcmp(name + n - 3, ".so") == 0;
  snprintf(plugin->id, sizeof plugin->id, "%.*s", form ? (int)(n - 6) : (int)n, form ? name + 3 : name);
  if (form && n - 6 <= BS_PLUGIN_ID_MAX && bs_plugin_id_valid(plugin->id)) return BS_OK;
  tame(plugin->id, sizeof plugin->id, 0);
  bs_error_set(err, BS_PLUGIN, "BS-PLG-ID", "file name is not bs_<id>.so with an id [a-z][a-z0-9_]{1,30}");
  bs_error_hint(err, "name the file after its plugin id");
  return BS_PLUGIN;
}

void bs_file_examine(bs_plugin_self *plugin, const char *name) {
  bs_error why = BS_ERROR_INIT;
  bs_elf_info info;
  struct stat st;
  int fd = -1;
  uint32_t state = BS_PLUGIN_REFUSED;
  int32_t rc = take_id(plugin, name, &why);
  plugin->real = realpath(plugin->path, NULL);
  if (plugin->real == NULL && errno == ENOENT) {
    rc = bs_error_errno(&why, BS_INPUT, "BS-PLG-NOTFOUND", errno, "cannot open the plugin");
    bs_error_hint(&why, "give the path of a file bs_ID.so, or an id that `bsrun plugins list` shows");
  } else if (plugin->real == NULL && rc == BS_OK) {
    rc = bs_error_errno(&why, BS_PLUGIN, "BS-PLG-PATH", errno, "cannot resolve the path");
  }
  if (rc == BS_OK) rc = open_checked(plugin, &fd, &st, &why);
  if (rc == BS_OK) {
    plugin->dev = st.st_dev;
    plugin->ino = st.st_ino;
    rc = check_twice(plugin, &why);
    if (rc != BS_OK) state = BS_PLUGIN_SHADOWED;
    bs_error elf_why = BS_ERROR_INIT;
    int32_t elf = bs_elf_read(fd, &info, &elf_why); /* also when shadowed or untrusted: for the list */
    if (elf == BS_OK && info.has_note) keep_note(plugin, &info);
    if (rc == BS_OK) rc = check_trust(plugin, 1, &why);
    if (rc == BS_OK && elf != BS_OK) {
      why = elf_why;
      rc = elf;
    }
    if (rc == BS_OK) rc = check_note(plugin, &info, &why);
    close(fd);
  }
  if (rc != BS_OK) {
    bs_plugin_refuse(plugin, state, &why);
  } else {
    plugin->state = BS_PLUGIN_FOUND;
    if (!plugin->has_note)
      bs_log_write(&plugin->context->logger, BS_LOG_WARN, "", -1,
                   "%s: has no .note.blockshock note; what it offers is known only once it runs",
                   plugin->path);
  }
}

int32_t bs_file_verify(bs_plugin_self *plugin, bs_error *err) {
  bs_elf_info info;
  struct stat st;
  int fd = -1;
  int32_t rc = open_checked(plugin, &fd, &st, err);
  if (rc != BS_OK) return rc;
  rc = check_trust(plugin, 0, err);
  if (rc == BS_OK) rc = bs_elf_read(fd, &info, err);
  if (rc == BS_OK) rc = check_note(plugin, &info, err);
  close(fd);
  if (rc != BS_OK) return rc;
  if (st.st_dev != plugin->dev || st.st_ino != plugin->ino || info.has_note != plugin->has_note ||
      (info.has_note && memcmp(&info.note, &plugin->note, sizeof info.note) != 0)) {
    bs_error_set(err, BS_PLUGIN, "BS-PLG-LOAD", "the file was changed after it was found");
    bs_error_hint(err, "run again");
    return BS_PLUGIN;
  }
  return BS_OK;
}

int bs_things_offer(const char *things, uint32_t kind, const char *name) {
  const char *word = bs_kind_word(kind);
  size_t word_size = strlen(word), name_size = strlen(name);
  for (const char *line = things; *line != '\0';) {
    size_t n = strcspn(line, "\n");
    if (n > word_size && strncmp(line, word, word_size) == 0 && line[word_size] == ':') {
      const char *own = line + word_size + 1;
      size_t own_size = n - word_size - 1;
      const char *cut = memchr(own, '=', own_size); /* "alias=name" offers the alias */
      if (cut != NULL) own_size = (size_t)(cut - own);
      if (own_size > 1 && own[own_size - 1] == ':') own_size--; /* a wrapper */
      /* "matmul@cpu" offers the op "matmul" too */
      const char *at = kind == BS_KIND_OP ? memchr(own, '@', own_size) : NULL;
      if (own_size == name_size && strncmp(own, name, own_size) == 0) return 1;
      if (at != NULL && (size_t)(at - own) == name_size && strncmp(own, name, name_size) == 0) return 1;
    }
    line += n + (line[n] == '\n');
  }
  return 0;
}
