/* SPDX-License-Identifier: MIT
 * builds.c - see builds.h. A build is made under a name with a dot and renamed at the end, so that a reader
 * sees a whole one or none. */
#include "lab/store/builds.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/text.h"
#include "lab/error.h"
#include "lab/json.h"
#include "lab/store/folder.h"
#include "lab/store/internal.h"

static const char FACTS[] = "build.json";

static void sum_of(const void *data, size_t size, char out_hex[65]) {
  bs_sha256 h;
  bs_sha256_init(&h);
  bs_sha256_add(&h, data, size);
  bs_sha256_hex(&h, out_hex);
}

static int32_t no_folder(const char *what, const char *root, const char *name, bs_error *err) {
  bs_error_set(err, BS_USAGE, "BS-BUILD-FOLDER", "%s%s%s is no folder of stored builds", root,
               name[0] != '\0' ? "/" : "", name);
  bs_error_hint(err, "%s: move it away", what);
  return BS_USAGE;
}

static int32_t check_root(const char *root, bs_error *err) {
  struct stat s;
  return stat(root, &s) == 0 && !S_ISDIR(s.st_mode) ? no_folder("it is a file", root, "", err) : BS_OK;
}

/* ---- keep --------------------------------------------------------------------------------------- */

static json_t *facts_of(const char *name, const bs_plugin_info *plugin, const char *file, size_t size,
                        const char *hex) {
  char abi[24], date[32];
  const time_t now = time(NULL);
  struct tm tm;
  gmtime_r(&now, &tm);
  strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &tm);
  snprintf(abi, sizeof abi, "%u.%u", plugin->abi >> 16, plugin->abi & 0xffffu);
  return json_pack("{s:s, s:s, s:o, s:s, s:s, s:s, s:I, s:o, s:s, s:s}", "name", name, "plugin", plugin->id,
                   "version", bs_json_of_text(plugin->version), "abi", abi, "file", file, "sha256", hex,
                   "bytes", (json_int_t)size, "from", bs_json_of_text(plugin->path), "kept_at", date,
                   "library_build_id", bs_build_id());
}

/* Reads the plugin's file whole. */
static int32_t read_plugin(const bs_plugin_info *plugin, char **out, size_t *out_size, bs_error *err) {
  *out = NULL;
  if (plugin->builtin) {
    bs_error_set(err, BS_USAGE, "BS-BUILD-LINKED", "the plugin %.60s is part of the library and has no file",
                 plugin->id);
    bs_error_hint(err, "build it as a file: cmake -DBS_STATIC_PLUGINS=OFF");
    return BS_USAGE;
  }
  char *whole = realpath(plugin->path, NULL); /* the loader follows links, too */
  if (whole == NULL) return bs_store_io_error(err, errno, "read", plugin->path);
  int32_t rc = bs_folder_file(AT_FDCWD, whole, out, out_size, err);
  if (rc == BS_OK && *out == NULL) rc = bs_store_io_error(err, ENOENT, "read", plugin->path);
  free(whole);
  return rc;
}

static int32_t write_build(int fd, const char *file, const char *data, size_t size, const json_t *facts,
                           bs_error *err) {
  char *text = json_dumps(facts, JSON_INDENT(2));
  if (text == NULL) return bs_no_memory(err, "a build");
  int32_t rc = bs_store_write_file(fd, file, data, size, 1, err);
  if (rc == BS_OK) rc = bs_store_write_file(fd, FACTS, text, strlen(text), 1, err);
  free(text);
  return rc;
}

static int32_t taken(const char *root, const char *name, bs_error *err) {
  bs_error_set(err, BS_USAGE, "BS-BUILD-TAKEN", "there is a build %.64s in %.200s already", name, root);
  bs_error_hint(err, "another name; or first: bsrun plugins drop %.64s", name);
  return BS_USAGE;
}

/* Makes the folder <root>/<name> with both files; nothing of it is left after an error. */
static int32_t publish(int root_fd, const char *root, const char *name, const char *data, size_t size,
                       const json_t *facts, bs_error *err) {
  char temporary[96];
  const char *file = bs_get_text(facts, "file");
  snprintf(temporary, sizeof temporary, ".%.64s.%ld", name, (long)getpid());
  if (faccessat(root_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0) return taken(root, name, err);
  if (mkdirat(root_fd, temporary, 0755) != 0)
    return bs_store_io_error(err, errno, "make a folder below", root);
  const int fd = openat(root_fd, temporary, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  int32_t rc = fd >= 0 ? write_build(fd, file, data, size, facts, err)
                       : bs_store_io_error(err, errno, "open a folder below", root);
  if (rc == BS_OK && renameat(root_fd, temporary, root_fd, name) != 0)
    rc = errno == EEXIST || errno == ENOTEMPTY || errno == ENOTDIR
             ? taken(root, name, err)
             : bs_store_io_error(err, errno, "rename a folder below", root);
  if (rc != BS_OK && fd >= 0) {
    unlinkat(fd, file, 0);
    unlinkat(fd, FACTS, 0);
  }
  if (fd >= 0) close(fd);
  if (rc != BS_OK) unlinkat(root_fd, temporary, AT_REMOVEDIR);
  return rc;
}

int32_t bs_build_keep(const char *root, const char *name, const bs_plugin_info *plugin, json_t **out_facts,
                      bs_error *err) {
  char *data = NULL, hex[65];
  size_t size = 0;
  int fd = -1;
  *out_facts = NULL;
  int32_t rc = bs_store_check_name("the build", name, err);
  if (rc == BS_OK) rc = check_root(root, err);
  if (rc == BS_OK) rc = read_plugin(plugin, &data, &size, err);
  if (rc == BS_OK) rc = bs_store_open_root(root, &fd, err);
  if (rc == BS_OK) {
    const char *slash = strrchr(plugin->path, '/');
    sum_of(data, size, hex);
    *out_facts = facts_of(name, plugin, slash != NULL ? slash + 1 : plugin->path, size, hex);
    rc = *out_facts != NULL ? publish(fd, root, name, data, size, *out_facts, err)
                            : bs_no_memory(err, "a build");
  }
  if (rc != BS_OK) {
    json_decref(*out_facts);
    *out_facts = NULL;
  }
  if (fd >= 0) close(fd);
  free(data);
  return rc;
}

/* ---- read --------------------------------------------------------------------------------------- */

static int32_t damaged(const char *root, const char *name, const char *what, bs_error *err) {
  bs_error_set(err, BS_CORRUPT, "BS-BUILD-DAMAGED", "the build %.200s/%.64s: %s", root, name, what);
  bs_error_hint(err, "bsrun plugins drop %.64s, and keep it again", name);
  return BS_CORRUPT;
}

/* Opens the folder of a build. BS_NOT_FOUND: there is nothing of that name; BS_USAGE: it is something else.
 */
static int32_t open_build(const char *root, const char *name, int *out_fd, bs_error *err) {
  struct stat s;
  char path[4096];
  const int32_t rc = check_root(root, err);
  if (rc != BS_OK) return rc;
  if (snprintf(path, sizeof path, "%s/%s", root, name) < (int)sizeof path && lstat(path, &s) == 0 &&
      !S_ISDIR(s.st_mode))
    return no_folder("it is a file or a link", root, name, err);
  return bs_folder_open(root, name, out_fd, err);
}

static int32_t read_facts(const char *root, const char *name, int *out_fd, json_t **out, bs_error *err) {
  char *text = NULL;
  size_t size;
  *out = NULL;
  int32_t rc = open_build(root, name, out_fd, err);
  if (rc != BS_OK) return rc;
  rc = bs_folder_file(*out_fd, FACTS, &text, &size, err);
  if (rc == BS_OK && text != NULL) *out = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
  free(text);
  const char *file = bs_get_text(*out, "file");
  const int whole = file[0] != '\0' && strchr(file, '/') == NULL && bs_get_text(*out, "plugin")[0] != '\0' &&
                    strlen(bs_get_text(*out, "sha256")) == 64;
  if (rc == BS_OK && !whole) rc = damaged(root, name, "build.json is missing or cannot be read", err);
  if (rc == BS_OK) return BS_OK;
  json_decref(*out);
  *out = NULL;
  close(*out_fd);
  *out_fd = -1;
  return rc;
}

static int32_t unknown(const char *root, const char *name, bs_error *err) {
  const char *names[64];
  json_t *rows = NULL;
  size_t n = 0;
  bs_error_set(err, BS_NOT_FOUND, "BS-BUILD-NONE", "there is no build '%.64s' in %.200s", name, root);
  if (bs_builds_list(root, &rows, NULL) == BS_OK)
    while (n < 64 && n < json_array_size(rows)) {
      names[n] = bs_get_text(json_array_get(rows, n), "name");
      n++;
    }
  const char *nearest = bs_nearest(name, names, n);
  if (nearest != NULL)
    bs_error_hint(err, "did you mean '%s'?", nearest);
  else
    bs_error_hint(err, "bsrun plugins kept lists them; bsrun plugins keep ID NAME makes one");
  json_decref(rows);
  return BS_NOT_FOUND;
}

int32_t bs_build_find(const char *root, const char *name, char **out_file, json_t **out_facts,
                      bs_error *err) {
  bs_text path = {0};
  char *data = NULL, hex[65];
  size_t size = 0;
  int fd = -1;
  *out_file = NULL;
  *out_facts = NULL;
  int32_t rc = bs_store_check_name("--baseline", name, err);
  if (rc != BS_OK) return rc;
  rc = read_facts(root, name, &fd, out_facts, err);
  if (rc == BS_NOT_FOUND) return unknown(root, name, err);
  if (rc != BS_OK) return rc;
  const char *file = bs_get_text(*out_facts, "file");
  rc = bs_folder_file(fd, file, &data, &size, err);
  close(fd);
  if (rc == BS_OK && data != NULL) sum_of(data, size, hex);
  if (rc == BS_OK && (data == NULL || strcmp(hex, bs_get_text(*out_facts, "sha256")) != 0))
    rc = damaged(root, name, data == NULL ? "its file is missing" : "its file is not the one that was kept",
                 err);
  free(data);
  bs_text_printf(&path, "%s/%s/%s", root, name, file);
  if (rc == BS_OK) *out_file = path.failed ? NULL : realpath(path.data, NULL);
  if (rc == BS_OK && *out_file == NULL)
    rc = path.failed ? bs_no_memory(err, "a build") : bs_store_io_error(err, errno, "read", path.data);
  bs_text_free(&path);
  if (rc == BS_OK) return BS_OK;
  json_decref(*out_facts);
  *out_facts = NULL;
  return rc;
}

static int32_t add_build(const char *root, const char *name, json_t *rows, bs_error *err) {
  json_t *facts = NULL;
  bs_error why = BS_ERROR_INIT;
  int fd = -1;
  if (read_facts(root, name, &fd, &facts, &why) != BS_OK)
    facts = json_pack("{s:o, s:o}", "name", bs_json_of_text(name), "why", bs_json_of_text(why.message));
  if (fd >= 0) close(fd);
  return facts != NULL && json_array_append_new(rows, facts) == 0 ? BS_OK : bs_no_memory(err, "builds");
}

int32_t bs_builds_list(const char *root, json_t **out_rows, bs_error *err) {
  struct dirent **entries = NULL;
  *out_rows = json_array();
  if (*out_rows == NULL) return bs_no_memory(err, "builds");
  const int32_t checked = check_root(root, err);
  if (checked != BS_OK) return checked;
  const int n = scandir(root, &entries, NULL, alphasort);
  if (n < 0) return errno == ENOENT ? BS_OK : bs_store_io_error(err, errno, "read the folder", root);
  int32_t rc = BS_OK;
  for (int i = 0; i < n; i++) {
    if (rc == BS_OK && entries[i]->d_name[0] != '.') rc = add_build(root, entries[i]->d_name, *out_rows, err);
    free(entries[i]);
  }
  free(entries);
  return rc;
}

static int of_build(const char *name) {
  const size_t length = strlen(name);
  return strcmp(name, FACTS) == 0 || (length > 3 && strcmp(name + length - 3, ".so") == 0);
}

/* Removes the files of a build, whole or damaged. BS_USAGE: there is another file; then nothing is removed.
 */
static int32_t remove_files(int fd, const char *root, const char *name, bs_error *err) {
  struct dirent **entries = NULL;
  char path[32];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  const int n = scandir(path, &entries, NULL, alphasort);
  int32_t rc = n >= 0 ? BS_OK : bs_store_io_error(err, errno, "read the folder", name);
  for (int i = 0; i < n && rc == BS_OK; i++) {
    const char *file = entries[i]->d_name;
    if (strcmp(file, ".") == 0 || strcmp(file, "..") == 0 || of_build(file)) continue;
    rc = bs_error_set(err, BS_USAGE, "BS-BUILD-FOLDER",
                      "%.200s/%.64s also has %.100s, which is not of a build", root, name, file);
    bs_error_hint(err, "move it away; nothing has been removed");
  }
  for (int i = 0; i < n; i++) {
    if (rc == BS_OK && of_build(entries[i]->d_name) && unlinkat(fd, entries[i]->d_name, 0) != 0)
      rc = bs_store_io_error(err, errno, "remove a file of", name);
    free(entries[i]);
  }
  free(entries);
  return rc;
}

int32_t bs_build_drop(const char *root, const char *name, bs_error *err) {
  int fd = -1, root_fd = -1;
  int32_t rc = bs_store_check_name("the build", name, err);
  if (rc == BS_OK) rc = open_build(root, name, &fd, err);
  if (rc == BS_NOT_FOUND) return unknown(root, name, err);
  if (rc == BS_OK) rc = bs_store_open_root(root, &root_fd, err);
  if (rc == BS_OK) rc = remove_files(fd, root, name, err);
  if (rc == BS_OK && unlinkat(root_fd, name, AT_REMOVEDIR) != 0)
    rc = bs_store_io_error(err, errno, "remove the folder", name);
  if (fd >= 0) close(fd);
  if (root_fd >= 0) close(root_fd);
  return rc;
}
