# The flag sets of this project: warnings for both compilers, hardening for
# release builds. Every target of ours links baton_flags; generated or
# third-party sources do not.

include(CheckCCompilerFlag)

set(BATON_WARNINGS
    -Wall -Wextra -Wpedantic -Wshadow -Wundef -Wvla -Walloca
    -Wcast-qual -Wcast-align -Wpointer-arith -Wwrite-strings
    -Wstrict-prototypes -Wmissing-prototypes -Wmissing-declarations
    -Wold-style-definition -Wredundant-decls -Wnested-externs -Wformat=2
    -Wconversion -Wsign-conversion -Wdouble-promotion -Wfloat-equal
    -Wswitch-enum -Wimplicit-fallthrough -Wnull-dereference -Winit-self
    -Wenum-conversion -Wframe-larger-than=8192
    # gcc
    -Wformat-signedness -Wlogical-op -Wduplicated-cond -Wduplicated-branches
    -Wjump-misses-init -Wtrampolines -Walloc-zero -Wformat-overflow=2
    -Wformat-truncation=2 -Wstringop-overflow=4 -Warith-conversion
    -Wsuggest-attribute=format
    # clang
    -Wassign-enum -Wcomma -Wconditional-uninitialized -Wextra-semi-stmt
    -Wloop-analysis -Wunreachable-code-aggressive -Wshift-sign-overflow
    -Wbad-function-cast -Wthread-safety)

add_library(baton_flags INTERFACE)
foreach(flag IN LISTS BATON_WARNINGS)
  string(MAKE_C_IDENTIFIER "HAS${flag}" has)
  check_c_compiler_flag("-Werror ${flag}" ${has})
  if(${has})
    target_compile_options(baton_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:${flag}>)
  endif()
endforeach()
if(BATON_WERROR)
  target_compile_options(baton_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:-Werror>)
endif()
target_compile_definitions(baton_flags INTERFACE _GNU_SOURCE)
target_include_directories(baton_flags INTERFACE ${PROJECT_SOURCE_DIR})

if(BATON_HARDEN)
  target_compile_options(baton_flags INTERFACE
      -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -fstack-protector-strong
      -fstack-clash-protection)
  check_c_compiler_flag(-fcf-protection=full HAS_CF_PROTECTION)
  if(HAS_CF_PROTECTION)
    target_compile_options(baton_flags INTERFACE -fcf-protection=full)
  endif()
  target_link_options(baton_flags INTERFACE
      -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack -Wl,--as-needed -Wl,-z,defs)
endif()

if(BATON_SANITIZE)
  # Without any optimisation the tests take three times as long.
  target_compile_options(baton_flags INTERFACE
      -O1 -fsanitize=${BATON_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(baton_flags INTERFACE -fsanitize=${BATON_SANITIZE})
  if(NOT BATON_SANITIZE MATCHES "thread")
    target_compile_options(baton_flags INTERFACE -fno-sanitize-recover=all)
  endif()
endif()
