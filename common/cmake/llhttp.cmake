# Gives the target `llhttp`: an installed llhttp of version 9 or later where there is one, otherwise the
# generated C sources that Debian's node-llhttp package ships, built here as a static library.
# common/http/http_parse.c makes both accept exactly the same messages.

if(TARGET llhttp)
  return()
endif()

find_package(llhttp 9 CONFIG QUIET)
if(TARGET llhttp::llhttp)
  add_library(llhttp INTERFACE)
  target_link_libraries(llhttp INTERFACE llhttp::llhttp)
  return()
elseif(TARGET llhttp::llhttp_shared OR TARGET llhttp::llhttp_static)
  add_library(llhttp INTERFACE)
  if(TARGET llhttp::llhttp_static)
    target_link_libraries(llhttp INTERFACE llhttp::llhttp_static)
  else()
    target_link_libraries(llhttp INTERFACE llhttp::llhttp_shared)
  endif()
  return()
endif()

find_package(PkgConfig QUIET)
if(PKG_CONFIG_FOUND)
  pkg_check_modules(LIBLLHTTP QUIET IMPORTED_TARGET libllhttp>=9)
  if(LIBLLHTTP_FOUND)
    add_library(llhttp INTERFACE)
    target_link_libraries(llhttp INTERFACE PkgConfig::LIBLLHTTP)
    return()
  endif()
endif()

find_path(BT_LLHTTP_SOURCE_DIR llhttp.c PATHS /usr/share/llhttp NO_DEFAULT_PATH)
find_path(BT_LLHTTP_HEADER_DIR llhttp.h PATHS /usr/share/include/llhttp NO_DEFAULT_PATH)
mark_as_advanced(BT_LLHTTP_SOURCE_DIR BT_LLHTTP_HEADER_DIR)
if(NOT BT_LLHTTP_SOURCE_DIR OR NOT BT_LLHTTP_HEADER_DIR)
  message(FATAL_ERROR "llhttp, the HTTP parser, was not found. Install it with one of:\n"
                      "  apt-get install node-llhttp      (Debian 12, Ubuntu 24.04)\n"
                      "  apt-get install libllhttp-dev    (newer releases)")
endif()

add_library(llhttp STATIC ${BT_LLHTTP_SOURCE_DIR}/api.c ${BT_LLHTTP_SOURCE_DIR}/http.c
                          ${BT_LLHTTP_SOURCE_DIR}/llhttp.c)
target_include_directories(llhttp SYSTEM PUBLIC ${BT_LLHTTP_HEADER_DIR})
target_compile_options(llhttp PRIVATE -w)
set_target_properties(llhttp PROPERTIES POSITION_INDEPENDENT_CODE ON)
