# Compiler options of every target of ours, as the interface target bs_options.
add_library(bs_options INTERFACE)
target_include_directories(bs_options INTERFACE
  $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>)
# -ffp-contract=off: results must not depend on which products the compiler fuses (docs/numbers.md);
# kernels ask for fma explicitly.
target_compile_options(bs_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes
  -Wvla -ffp-contract=off -fno-math-errno)
if(BS_WERROR)
  target_compile_options(bs_options INTERFACE -Werror)
endif()
target_compile_definitions(bs_options INTERFACE _GNU_SOURCE=1)
if(BS_SANITIZE)
  target_compile_options(bs_options INTERFACE -fsanitize=${BS_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(bs_options INTERFACE -fsanitize=${BS_SANITIZE})
endif()

# Every run reads bsrun, the library and its plugins whole, for their SHA-256 in the record: without compression more than half of
# these files is debug information.
include(CheckLinkerFlag)
check_linker_flag(C "-Wl,--compress-debug-sections=zlib" BS_COMPRESSES_DEBUG)
if(BS_COMPRESSES_DEBUG AND NOT BS_SANITIZE)
  set(BS_COMPRESS_DEBUG "-Wl,--compress-debug-sections=zlib")
endif()
