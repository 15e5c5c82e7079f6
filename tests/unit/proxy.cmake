# proxy/: one executable per module. baton-engine has modules of the same
# names, hence the prefix.
foreach(module request exchange route relay fault headers engine)
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/test_proxy_${module}.c)
    baton_unit(test_proxy_${module} LIBS baton_proxy)
  endif()
endforeach()
